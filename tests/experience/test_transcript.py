import json
from dataclasses import replace

from complementary_rl.experience.serialise import trajectory_from_json, trajectory_to_json
from tests.helpers.scripted import episode


def test_a_trajectory_survives_json_bit_for_bit() -> None:
    whole = replace(
        episode(3, 1, step=7, success=True, entries=(4, 9), answers=("s7-g3-m1/ask1",)), reward=0.1 + 0.2, final_observation="☃\n"
    )
    assert trajectory_from_json(json.loads(json.dumps(trajectory_to_json(whole)))) == whole
    assert trajectory_from_json(json.loads(json.dumps(trajectory_to_json(episode(turns=0))))) == episode(turns=0)
