"""The schedules of rollouts."""

from onnxproof.verification.rollout.schedules import Freedom, parse, plan


def test_no_rollout_is_longer_than_the_model_was_made_for() -> None:
    freedom = Freedom(batches=(2, 1), masked=True)
    assert any(schedule.total > 70 for schedule in plan(freedom, [128]))
    assert all(schedule.total <= 32 for schedule in plan(freedom.within(32), [128]))
    assert freedom.within(None) == freedom
    assert freedom.within(32).within(64).longest == 32


def test_every_schedule_is_read_back_from_its_name() -> None:
    freedom = Freedom(batches=(2, 1, 3), masked=True, masked_source=True)
    planned = list(plan(freedom, [128]))
    assert {schedule.side for schedule in planned} == {"", "left", "right", "source"}
    assert [parse(schedule.name) for schedule in planned] == planned


def test_a_padded_source_hides_no_token_of_the_decoder() -> None:
    one_by_one = Freedom(batches=(2,), chunk=1, masked_source=True)
    padded = next(schedule for schedule in plan(one_by_one, []) if schedule.side == "source")
    assert set(padded.lengths) == {1}
    assert padded.mask().all()
