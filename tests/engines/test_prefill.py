"""What is read together and what is read once."""

from complementary_rl.engines.local.prefill import common_prefix, prefill_groups, shared_prefixes


def test_one_group_in_row_order_when_everything_fits() -> None:
    assert prefill_groups([3, 9, 5], budget=27) == [[0, 1, 2]]


def test_groups_respect_the_budget_and_keep_every_row() -> None:
    lengths = [100, 7, 300, 120, 90, 5000, 6]
    groups = prefill_groups(lengths, budget=600)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= 600


def test_short_rows_are_not_padded_to_a_long_one() -> None:
    groups = prefill_groups([4000, *[10] * 63], budget=1_000_000)
    assert groups == [[0], list(range(1, 64))]


def test_prompts_of_a_group_share_their_beginning() -> None:
    first, second = tuple(range(100)), tuple(range(200, 300))
    prompts = [(*first, 1), (*second, 1), (*first, 2), (*second, 2, 3), (*first, 1)]
    shares = shared_prefixes(prompts)
    for row, (donor, tokens) in shares.items():
        assert donor not in shares
        assert prompts[row][:tokens] == prompts[donor][:tokens]
        assert tokens < len(prompts[row])
    assert {row: tokens for row, (_, tokens) in shares.items()} == {4: 100, 2: 100, 3: 100}


def test_little_in_common_is_not_worth_a_pass() -> None:
    assert shared_prefixes([(1, 2, 3), (1, 2, 4)]) == {}
    assert shared_prefixes([(1,) * 80 + (2,) * 200, (1,) * 80 + (3,) * 200]) == {}
    assert shared_prefixes([(5,)]) == {}


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], (1, 2, 4)) == 2
    assert common_prefix([1, 2], (1, 2, 4)) == 2
    assert common_prefix([], (1,)) == 0
