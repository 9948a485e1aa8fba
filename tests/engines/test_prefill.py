"""What is read once for several prompts."""

from complementary_rl.engines.local.prefill import common_prefix, shared_prefixes


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
