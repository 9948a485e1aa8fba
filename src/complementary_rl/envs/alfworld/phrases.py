"""How a task is said, in ALFWorld's words, and as the key under which experience about it is found."""

from collections.abc import Mapping

from complementary_rl.envs.alfworld.pddl import TaskType

PHRASES: Mapping[TaskType, tuple[str, str]] = {
    TaskType.PLACE: ("put a {thing} in {target}", "put some {thing} on {target}"),
    TaskType.TWO: ("put two {thing} in {target}", "find two {thing} and put them in {target}"),
    TaskType.CLEAN: ("put a clean {thing} in {target}", "clean some {thing} and put it in {target}"),
    TaskType.HEAT: ("put a hot {thing} in {target}", "heat some {thing} and put it in {target}"),
    TaskType.COOL: ("put a cool {thing} in {target}", "cool some {thing} and put it in {target}"),
    TaskType.LIGHT: ("look at {thing} under the {target}", "examine the {thing} with the {target}"),
}

KINDS: Mapping[TaskType, str] = {
    TaskType.PLACE: "Pick and place",
    TaskType.TWO: "Pick two and place",
    TaskType.CLEAN: "Clean and place",
    TaskType.HEAT: "Heat and place",
    TaskType.COOL: "Cool and place",
    TaskType.LIGHT: "Examine in light",
}
