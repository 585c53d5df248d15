"""Makes at the server what the settings and the metadata say: rules, overrides of single keys and teams, and changed ceilings."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator

from .. import _fork
from .._sync.client import Limina
from ..errors import Conflict, Forbidden, NotFound
from ..types import Hold
from ._operation import Plan
from ._settings import Limit, Settings

log = logging.getLogger("limina.litellm")
RULE_SET = "litellm"
MOST_KNOWN = 10_000
Known = tuple[str, ...]


class Book:
    """Remembers what it has made, so that most calls need no request."""

    def __init__(self, client: Limina, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._begin()
        _fork.watch(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Known, int] = OrderedDict()

    def after_fork(self) -> None:
        self._begin()

    def is_up_to_date(self, plan: Plan) -> bool:
        return not self._settings.manage or all(self._known.get(about) == value for about, value in self._needs(plan))

    def update(self, plan: Plan) -> None:
        """Makes what is missing. Blocks."""
        if self.is_up_to_date(plan):
            return
        for about, value in self._needs(plan):
            with self._lock:
                known = self._known.get(about) == value
            if not known:
                self._make(about, plan)
                self._remember(about, value)

    def _needs(self, plan: Plan) -> Iterator[tuple[Known, int]]:
        yield ("rules",), 1
        for limit in plan.caller.limits:
            (scope,) = limit.scope
            yield ("override", limit.rule_name, plan.caller.who[scope]), limit.limit
        for name, budget in plan.budgets.items():
            yield ("ceiling", name), budget.ceiling

    def _make(self, about: Known, plan: Plan) -> None:
        match about:
            case ("rules",):
                rules = [limit.rule(limit.limit) for limit in self._settings.limits]
                self._client.rule_sets.put(RULE_SET, rules, overrides="open")
            case ("override", rule, value):
                self._put_override(next(limit for limit in plan.caller.limits if limit.rule_name == rule), value)
            case ("ceiling", name):
                self._set_ceiling(next(hold for hold in plan.holds() if hold.limit_name == name))

    def _remember(self, about: Known, value: int) -> None:
        with self._lock:
            self._known[about] = value
            if len(self._known) > MOST_KNOWN:
                # The oldest is made again when it is needed. The rules, which were first, stay.
                oldest = next(known for known in self._known if known != ("rules",))
                del self._known[oldest]

    def _put_override(self, limit: Limit, value: str) -> None:
        """The limit of one key or team. If the settings do not limit the others, the rule itself has no limit."""
        if all(known.rule_name != limit.rule_name for known in self._settings.limits):
            try:
                self._client.rules.put(limit.rule(-1))
            except Conflict as error:  # Another gateway's settings have the rule.
                log.info("the rule %s is not changed: %s", limit.rule_name, error)
        name = value if 0 < len(value.encode()) <= 128 and value.isprintable() else hashlib.sha256(value.encode()).hexdigest()
        self._client.rules.put_override(limit.rule_name, name, {limit.scope[0]: value}, limit=limit.limit)

    def _set_ceiling(self, hold: Hold) -> None:
        """A budget's limit is made by its first hold. The settings may have changed since then."""
        try:
            if self._client.ledger.limit(hold.limit_name).ceiling != hold.ceiling:
                self._client.ledger.set_ceiling(hold.limit_name, hold.ceiling)
        except NotFound:
            pass
        except Forbidden as error:
            log.warning("the ceiling of %s is not changed: %s", hold.limit_name, error)
