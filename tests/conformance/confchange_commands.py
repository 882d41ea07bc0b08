"""`simple`, `enter-joint`, `leave-joint`: they test the changer alone, on an empty tracker."""

from __future__ import annotations

from logservice.ids import ReplicaId
from logservice.raft.config import RaftLimits
from logservice.raft.membership.changer import Changer, ChangeRefused, Refusal
from logservice.raft.tracker.tracker import Tracker
from tests.conformance import words
from tests.conformance.changes import parse_steps
from tests.conformance.datadriven import Directive

COMMANDS = frozenset({"simple", "enter-joint", "leave-joint"})

REFUSALS = {
    Refusal.ALREADY_JOINT: "config is already joint",
    Refusal.ZERO_VOTERS_JOINT: "can't make a zero-voter config joint",
    Refusal.NOT_JOINT: "can't leave a non-joint config",
    Refusal.SIMPLE_IN_JOINT: "can't apply simple config change in joint config",
    Refusal.MANY_VOTERS_SIMPLE: "more than one voter changed without entering joint config",
    Refusal.NO_VOTERS_LEFT: "removed all voters",
}


class ConfchangeRunner:
    """The commands of one file. A file has one tracker; its log grows by an entry per command."""

    def __init__(self) -> None:
        self._tracker = Tracker(ReplicaId(0), RaftLimits(inflight_messages=10))
        self._last_index = 0

    def run(self, directive: Directive) -> str:
        tracker = self._tracker
        last = self._last_index
        self._last_index += 1
        changer = Changer(
            tracker.config, tracker.progress, lambda learner: tracker.new_progress(last, learner)
        )
        requested = parse_steps(directive.input)
        try:
            if directive.command == "simple":
                config, progress = changer.simple(requested)
            elif directive.command == "enter-joint":
                config, progress = changer.enter_joint(
                    requested, auto_leave=directive.flag("autoleave")
                )
            elif requested:
                return "this command takes no input"
            else:
                config, progress = changer.leave_joint()
        except ChangeRefused as refused:
            return REFUSALS[refused.refusal]
        tracker.install(config, progress)
        lines = [words.configuration(config)]
        lines += [
            f"{replica}: {words.progress(item.picture())}"
            for replica, item in tracker.progress.items()
        ]
        return "\n".join(lines)
