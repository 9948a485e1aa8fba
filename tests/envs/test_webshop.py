"""The shop as text: pages to the letter, links, invalid actions, splits, scripted shoppers, speed."""

import re
import threading
import time
from collections.abc import Callable

import pytest

from benchmarks.webshop import measure
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.playing import expert_player, play_episode
from complementary_rl.envs.registry import make_suite
from complementary_rl.envs.webshop.catalogue import Product, Request, Review
from complementary_rl.envs.webshop.generated import generate_products
from complementary_rl.envs.webshop.goals import synthetic_candidates
from complementary_rl.envs.webshop.reward import Goal, reward
from complementary_rl.envs.webshop.search import SearchEngine
from complementary_rl.envs.webshop.shoppers import careful_shopper, random_shopper
from complementary_rl.envs.webshop.site import Shop, Visit
from complementary_rl.envs.webshop.suite import WebShop, WebShopEnv
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng
from complementary_rl.types import Task

LAMP = Product(
    asin="B00000LAMP",
    title="Lumo  Desk Lamp",
    query="lamps",
    department="home",
    category=("Home", "Lighting", "Lamps"),
    description="A lamp to read by.",
    bullets=("Bright.", "Dimmable, with a long cable."),
    attributes=("dimmable",),
    options={"color": ("black", "light blue"), "size": ("8 inch | 20 cm", "reviews")},
    prices=(19.99,),
    request=Request("Find me dimmable lamps.", ("dimmable",)),
    reviews=(Review("Good", "5", "It shines."),),
    rating="5.0 out of 5 stars",
)
CHAIRS = [
    Product(f"B0000CHAI{n}", f"Oak Chair {n}", "chairs", "home", ("Home", "Chairs"), "", (), ("oak",), {}, (20.0 + n, 30.0 + n))
    for n in range(10)
] + [Product("B000CHAIRX", "Chair", "chairs", "home", ("Home", "Chairs"), "", (), (), {}, (9.0,)) for _ in range(50)]
GOAL = Goal("webshop/lamp", LAMP, "a dimmable lamp", ("dimmable",), (("color", "light blue"), ("size", "8 inch | 20 cm")), 30.0)
HEAD = "Instruction: [SEP] a dimmable lamp [SEP] Back to Search [SEP] "
ITEM = HEAD + (
    "< Prev [SEP] color [SEP] black [SEP] light blue [SEP] size [SEP] 8 inch | 20 cm [SEP] reviews [SEP] Lumo Desk Lamp [SEP] "
    "Price: $19.99 [SEP] Rating: 5.0 out of 5 stars [SEP] Description [SEP] Features [SEP] Reviews [SEP] "
)


@pytest.fixture(scope="module")
def suite() -> WebShop:
    return WebShop()


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop([LAMP, *CHAIRS])


@pytest.fixture
def env(suite: WebShop) -> WebShopEnv:
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    return env


def open_lamp(shop: Shop) -> Visit:
    visit = Visit(shop, GOAL)
    visit.search("desk lamp")
    assert visit.click("B00000LAMP")
    return visit


def test_it_keeps_the_protocol() -> None:
    report = check_env(make_suite("webshop", items=120, train_tasks=20, heldout_tasks=10), episodes=6)
    assert report.ok, str(report)
    assert report.notes == []


def test_a_visit_to_the_letter(shop: Shop) -> None:
    visit = Visit(shop, GOAL)
    assert str(visit.page) == "WebShop [SEP] Instruction: [SEP] a dimmable lamp [SEP] Search"
    assert visit.page.has_search_bar
    assert list(visit.page.links) == []
    visit.search("desk lamps")
    assert str(visit.page) == HEAD + "Page 1 (Total results: 1) [SEP] B00000LAMP [SEP] Lumo Desk Lamp [SEP] $19.99"
    assert list(visit.page.links) == ["back to search", "b00000lamp"]
    assert visit.click("b00000LAMP")
    assert str(visit.page) == ITEM + "Buy Now"
    assert list(visit.page.links) == [
        *("back to search", "< prev", "description", "features", "reviews", "buy now", "black", "light blue", "8 inch | 20 cm")
    ]
    for name, text in (
        ("Description", "A lamp to read by."),
        ("Features", "Bright. [SEP] Dimmable, with a long cable."),
        ("reviews", '"Good" [SEP] 5 [SEP] It shines.'),  # the button, not the option of that name
    ):
        assert visit.click(name)
        assert str(visit.page) == f"{HEAD}< Prev [SEP] {text}"
        assert list(visit.page.links) == ["back to search", "< prev"]
        assert visit.click("< PREV")
        assert str(visit.page) == ITEM + "Buy Now"
    assert visit.click("light blue")
    assert visit.click("8 inch  |  20 cm")
    assert visit.score is None
    assert visit.click("Buy Now")
    assert visit.score == 1.0
    assert str(visit.page) == (
        "Thank you for shopping with us! [SEP] Purchased [SEP] asin [SEP] B00000LAMP [SEP] options [SEP] "
        '{"color": "light blue", "size": "8 inch | 20 cm"} [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0'
    )


def test_results_come_ten_to_a_page_and_fifty_in_all(shop: Shop) -> None:
    visit = Visit(shop, GOAL)
    visit.search("oak chairs")
    assert " [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] B0000CHAI0 [SEP] Oak Chair 0 [SEP] $20.0 to $30.0 [SEP] " in str(
        visit.page
    )
    assert len(visit.page.links) == 2 + 10
    assert not visit.click("< prev")
    for page in (2, 3, 4, 5):
        assert visit.click("next >")
        assert f"Page {page} (Total results: 50) [SEP] < Prev" in str(visit.page)
    assert not visit.click("next >")
    assert visit.click("< prev")
    assert "Page 4 " in str(visit.page)
    visit.click("b000chairx")
    visit.click("< prev")
    assert "Page 4 " in str(visit.page)


def test_options_stay_on_sub_pages_and_are_forgotten_with_the_item(shop: Shop) -> None:
    visit = open_lamp(shop)
    for text in ("black", "light blue", "description", "< prev", "buy now"):
        assert visit.click(text)
    assert visit.score == pytest.approx(3 / 4)  # the last color counts; the size was not chosen
    visit = open_lamp(shop)
    for text in ("light blue", "< prev", "b00000lamp", "buy now"):
        assert visit.click(text)
    assert visit.score == pytest.approx(2 / 4)


def test_an_attributes_page_where_it_is_asked_for() -> None:
    visit = open_lamp(Shop([LAMP], show_attributes=True))
    assert str(visit.page) == ITEM + "Attributes [SEP] Buy Now"
    visit.click("attributes")
    assert str(visit.page) == HEAD + "< Prev [SEP] dimmable [SEP] home [SEP] lamps [SEP] Home › Lighting › Lamps"


def test_empty_pages(shop: Shop) -> None:
    visit = Visit(shop, GOAL)
    visit.search("zzz ... \x00")
    assert str(visit.page) == HEAD + "Page 1 (Total results: 0)"
    visit.search("oak chair")
    visit.click("b0000chai0")
    for name in ("description", "features", "reviews"):
        visit.click(name)
        assert str(visit.page) == f"{HEAD}< Prev [SEP] No {name.capitalize()}"
        visit.click("< prev")


def test_search_knows_word_forms_and_ranks_rare_words_first(shop: Shop) -> None:
    engine = shop.engine
    assert engine.search("LAMPS") == engine.search("the lamp's") == (0,)
    assert engine.search("inches") == (0,)  # options are searched too
    assert engine.search("cable") == ()  # only the first bullet point is
    assert engine.search("chair lamp")[0] == 0
    assert engine.search("chair 3")[0] == 4
    assert engine.search("oak chair")[:10] == tuple(range(1, 11))  # equal scores keep the catalogue's order


def test_threads_may_search_at_once() -> None:
    products = generate_products(30, 0)
    queries = [product.title for product in products]
    alone = [*map(SearchEngine(products).search, queries)]
    shared = SearchEngine(products)
    found: list[list[tuple[int, ...]]] = []
    threads = [threading.Thread(target=lambda: found.append([shared.search(query) for query in queries])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 4


def test_an_episode_and_its_info(suite: WebShop, env: WebShopEnv) -> None:
    task = suite.tasks("train")[0]
    goal = suite.goal(task)
    observation, _ = env.reset(task, 7)
    assert observation == f"WebShop [SEP] Instruction: [SEP] {goal.instruction} [SEP] Search\nAvailable actions: search[words]"
    observation, *rest = env.step(f"  Search[{goal.product.title}]\n")
    assert rest[:3] == [0.0, False, False]
    actions = observation.partition("\nAvailable actions: ")[2].split(", ")
    assert rest[3] == {"success": False, "score": 0.0, "invalid_actions": 0, "actions": actions}
    assert f"click[{goal.product.asin.lower()}]" in observation.partition("\nAvailable actions: ")[2]
    observation = env.step(f"CLICK[{goal.product.asin}]")[0]
    assert observation.endswith(", ".join(f"click[{value}]" for values in goal.product.options.values() for value in values))
    for _, value in goal.options:
        env.step(f"click[{value}]")
    observation, *rest = env.step("click[Buy Now]")
    assert observation.startswith("Thank you for shopping with us!")
    assert rest == [1.0, True, False, {"success": True, "score": 1.0, "invalid_actions": 0, "actions": []}]
    assert env.reset(task, 8)[0].startswith("WebShop [SEP] ")


def test_buying_something_is_no_success(env: WebShopEnv) -> None:
    env.step("search[women]")
    observation = env.step("search[men]")[0]  # search works on every page, as in the original
    asin = re.search(r"B0\w{8}", observation)
    assert asin
    env.step(f"click[{asin[0]}]")
    _, score, bought, truncated, info = env.step("click[buy now]")
    assert (bought, truncated, info["success"]) == (True, False, False)
    assert 0 <= score == info["score"] < 1


@pytest.mark.parametrize(
    "action",
    [
        *(
            "",
            "buy",
            "click",
            "click[]",
            "click[ ]",
            "search[]",
            "search[ \n]",
            "click[buy now]",
            "click[search]",
            "click[no such thing]",
        ),
        *(
            "I click[back to search]",
            "click[back to search] now",
            "look[lamp]",
            "click[\x00\x1b[31m]",
            "search[" + "lamp " * 200_000 + "]",
        ),
    ],
)
def test_what_is_no_action_says_so_and_changes_nothing(env: WebShopEnv, suite: WebShop, action: str) -> None:
    before = env.reset(suite.tasks("train")[0], 0)[0]
    start = time.process_time()
    observation, _, terminated, truncated, info = env.step(action)
    assert time.process_time() - start < 0.5
    assert observation == f"That is not an action here; nothing happened.\n{before}"
    assert (terminated, truncated) == (False, False)
    assert (info["success"], info["score"], info["invalid_actions"]) == (False, 0.0, 1)


def test_the_turn_limit_truncates_with_score_zero() -> None:
    suite = WebShop(items=60, max_turns=2)
    assert "2 actions" in suite.instructions
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert env.step("search[lamp]")[1:4] == (0.0, False, False)
    _, *ending, info = env.step("click[back to search]")
    assert ending == [0.0, False, True]
    assert (info["success"], info["score"], info["invalid_actions"]) == (False, 0.0, 0)


def test_available_actions_can_be_left_out() -> None:
    suite = WebShop(items=60, show_actions=False)
    env = suite.make_env()
    assert "Available" not in env.reset(suite.tasks("train")[0], 0)[0] + env.step("search[shoes]")[0]


def test_every_generated_goal_can_be_met_by_the_product_it_is_made_from() -> None:
    for seed in range(3):
        for candidate in synthetic_candidates(generate_products(150, seed))[::5]:
            goal = candidate.goal()
            assert reward(goal.product, dict(goal.options), goal) == 1.0, goal
            assert goal.price_limit is not None
            assert 0 < goal.price_limit - goal.product.price <= 40


def test_descriptions_say_what_to_buy(suite: WebShop) -> None:
    for task in suite.tasks("heldout")[:50]:
        goal = suite.goal(task)
        assert goal.product.query in task.description
        assert all(attribute in task.description for attribute in goal.attributes)
        assert all(f"{name}: {value}" in task.description for name, value in goal.options)
        assert task.description.endswith(f", and price lower than {goal.price_limit:.2f} dollars")
        assert task.scope == "webshop"


def test_splits_share_no_goal_and_no_generated_product(suite: WebShop) -> None:
    train, test = ([suite.goal(task) for task in suite.tasks(split)] for split in ("train", "heldout"))
    dev = [goal for other in [WebShop(heldout="dev")] for goal in map(other.goal, other.tasks("heldout"))]
    assert (len(train), len(test)) == (1000, 500)
    asins = [{goal.product.asin for goal in goals} for goals in (train, test, dev)]
    texts = [{goal.instruction for goal in goals} for goals in (train, test, dev)]
    for sets in (asins, texts):
        assert not sets[0] & sets[1]
        assert not sets[0] & sets[2]
    assert not asins[1] & asins[2]
    assert len(asins[0]) > 200


def test_goals_with_rare_attributes_are_drawn_more_often() -> None:
    everything, some = WebShop(items=200, train_tasks=10**6), WebShop(items=200, train_tasks=200)
    counts: dict[str, int] = {}
    for goal in map(everything.goal, everything.tasks("train")):
        for name in goal.attributes:
            counts[name] = counts.get(name, 0) + 1

    def rarity(of: WebShop) -> float:
        goals = [of.goal(task) for task in of.tasks("train")]
        return sum(sum(1 / counts[name] for name in goal.attributes) / len(goal.attributes) for goal in goals) / len(goals)

    assert rarity(some) > 1.3 * rarity(everything)


def test_the_seed_makes_another_catalogue_and_more_items_keep_the_first() -> None:
    assert [item.title for item in generate_products(30, 0)] == [item.title for item in generate_products(50, 0)][:30]
    assert not {item.asin for item in generate_products(50, 0)} & {item.asin for item in generate_products(50, 1)}
    small, again, other = WebShop(items=60), WebShop(items=60), WebShop(items=60, seed=1)
    assert list(small.tasks("train")) == list(again.tasks("train"))
    assert not {task.id for task in small.tasks("train")} & {task.id for task in other.tasks("train")}


def test_generated_products_are_whole() -> None:
    products = generate_products(300, 0)
    assert len({product.asin for product in products}) == 300
    for product in products:
        assert len(product.asin) == 10
        assert len(product.category) >= 3
        assert product.request
        assert set(product.request.attributes) <= set(product.attributes)
        values = [value for values in product.options.values() for value in values]
        assert len(values) == len(set(values))
        assert min(product.prices) <= product.price <= max(product.prices)
        texts = (product.title, product.description, *product.bullets, *values, product.request.text)
        assert all(re.fullmatch(r"[\w .,:;'&|-]+", text) for text in texts), texts
    assert 10 < sum(len(product.prices) == 2 for product in products) < 60


def test_a_careful_shopper_does_well_and_a_random_one_does_not(suite: WebShop) -> None:
    careful = measure(suite, lambda task: careful_shopper(task.description), 100)
    aimless = measure(suite, lambda task: random_shopper(task.description, rng("tests/webshop", task.id)), 100)
    # Measured over 500 tasks: success 0.63, score 0.87 against 0.00 and 0.14.
    assert careful.successes > 45
    assert careful.score > 75
    assert aimless.successes < 5
    assert 3 < aimless.score < 30
    assert careful.bought == 100
    # Measured: 8,000 to 10,000; this leaves room for a busy machine.
    assert careful.turns / careful.seconds > 2000


def test_price_limits_and_prices_of_ranges_come_from_identity() -> None:
    suites = WebShop(items=80), WebShop(items=80, train_tasks=7)
    goals = [{task.id: suite.goal(task) for task in suite.tasks("train")} for suite in suites]
    assert len(goals[1]) == 7
    assert all(goals[0][name].price_limit == goal.price_limit for name, goal in goals[1].items() if name in goals[0])
    assert all(goals[0][name].product.price == goal.product.price for name, goal in goals[1].items() if name in goals[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"items": 0}, "items is 0"),
        ({"items": 3}, "too few"),
        ({"train_tasks": 0}, "train_tasks"),
        ({"heldout_tasks": -1}, "heldout_tasks"),
        ({"max_turns": 0}, "max_turns"),
        ({"goals": "all"}, "'synthetic' or 'human'"),
        ({"goals": "human"}, "name its folder"),
        ({"heldout": "train"}, "'test' or 'dev'"),
    ],
)
def test_options_out_of_range(options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        make_suite("webshop", **options)


@pytest.mark.parametrize(
    "change", [lambda task: Task("webshop/none", "webshop", "x", 0), lambda task: Task(task.id, "webshop", "x", 0)]
)
def test_a_task_of_another_suite(suite: WebShop, change: Callable[[Task], Task]) -> None:
    with pytest.raises(UserError, match="no task"):
        suite.make_env().reset(change(suite.tasks("heldout")[0]), 0)


def test_the_careful_shopper_is_the_expert_where_it_can_read_the_actions() -> None:
    suite = WebShop(items=200, train_tasks=40, heldout_tasks=1)
    env = suite.make_env()
    outcomes = [play_episode(suite, env, task, 0, expert_player(suite, task, 0)) for task in suite.tasks("train")]
    assert sum(outcome.success for outcome in outcomes) >= 16
    silent = WebShop(items=80, train_tasks=1, heldout_tasks=1, show_actions=False)
    assert silent.expert(silent.tasks("train")[0], 0) is None


def test_what_can_be_done_is_in_info_and_works() -> None:
    suite = WebShop(items=80, train_tasks=4, heldout_tasks=1, show_actions=False)
    env = suite.make_env()
    for task in suite.tasks("train"):
        _, info = env.reset(task, 0)
        assert info["actions"] == [f"search[{task.description}]"]
        for turn in range(suite.max_turns):
            choice = info["actions"][turn % len(info["actions"])]
            _, _, bought, truncated, info = env.step(choice)
            assert info["invalid_actions"] == 0
            if bought or truncated:
                break
