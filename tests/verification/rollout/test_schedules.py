"""The schedules of rollouts."""

from onnxproof.verification.rollout.schedules import Freedom, plan


def test_no_rollout_is_longer_than_the_model_was_made_for() -> None:
    freedom = Freedom(batches=(2, 1), masked=True)
    assert any(schedule.total > 70 for schedule in plan(freedom, [128]))
    assert all(schedule.total <= 32 for schedule in plan(freedom.within(32), [128]))
    assert freedom.within(None) == freedom
    assert freedom.within(32).within(64).longest == 32
