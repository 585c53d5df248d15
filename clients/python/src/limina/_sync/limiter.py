# Made from _async/limiter.py by unasync.py.
"""The limiter's rules, rule sets, counters and leases. Checks themselves are `client.check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._wire import KeyValues, fields
from ..types import (
    Counter,
    CounterReply,
    Durability,
    Group,
    Groups,
    LeaseStatus,
    MatchReply,
    OverrideStatus,
    Page,
    Rule,
    RuleMatch,
    RuleSet,
    RuleSetChanges,
    RuleSetInfo,
    RuleStatus,
    SetOverrides,
    SetRuleStatus,
    Window,
)
from .namespace import Namespace


class Rules:
    """`client.rules`: rules and their overrides."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def create(
        self,
        name: str,
        *,
        limit: int,
        group_by: Sequence[str] = (),
        selection: Mapping[str, Any] | None = None,
        window: Window | None = None,
        shadow: bool = False,
        durability: Durability | None = None,
        description: str | None = None,
    ) -> RuleStatus:
        """Creates a rule. Raises `Conflict` if there is one with this name.

        `limit` is for each combination of the values of the `group_by` keys: −1 is no limit. Without a `window` it limits
        what is in use at the same time; otherwise what happens in `fixed(60)`, `sliding(60)` or `bucket(60, burst=20)`.
        """
        rule = Rule(
            name,
            limit,
            group_by=list(group_by) or None,
            selection=selection,
            window=window,
            shadow=shadow or None,
            durability=durability,
            description=description,
        )
        return self._namespace.change(RuleStatus, "POST", self._namespace.path("limiter/rules"), rule)

    def put(self, rule: Rule | RuleStatus) -> RuleStatus:
        """Replaces a rule, or creates it. What the server returned can be sent back as it is."""
        return self._namespace.change(RuleStatus, "PUT", self._namespace.path("limiter/rules/{}", rule.name), rule)

    def patch(self, name: str, **changes: Any) -> RuleStatus:
        """Changes the given fields (`limit`, `window`, `selection`, `shadow`, `durability`, `description`). `None` removes one."""
        return self._namespace.patch(RuleStatus, self._namespace.path("limiter/rules/{}", name), changes)

    def get(self, name: str) -> RuleStatus:
        return self._namespace.get(RuleStatus, self._namespace.path("limiter/rules/{}", name))

    def list(self, *, limit: int | None = None, after: str | None = None) -> Page[RuleStatus]:
        return self._namespace.get(Page[RuleStatus], self._namespace.path("limiter/rules", limit=limit, after=after))

    def delete(self, name: str) -> None:
        """Deletes a rule and all its overrides."""
        self._namespace.delete(self._namespace.path("limiter/rules/{}", name))

    def match(self, key_values: KeyValues) -> Sequence[RuleMatch]:
        """Which rules and overrides would apply. Takes nothing."""
        target = self._namespace.path("limiter/rules/match")
        return (self._namespace.query(MatchReply, target, {"key_values": key_values})).rules

    def groups(self, name: str, *, order: str = "used", limit: int | None = None) -> Sequence[Group]:
        """The groups of a rule with the most in use, or nearest to their limit."""
        target = self._namespace.path("limiter/rules/{}/groups", name, order=order, limit=limit)
        return (self._namespace.get(Groups, target)).items

    def put_override(
        self, rule: str, name: str, key_values: KeyValues, *, limit: int, burst: int | None = None
    ) -> OverrideStatus:
        """Replaces the limit of a rule for exact values."""
        target = self._namespace.path("limiter/rules/{}/overrides/{}", rule, name)
        body = fields(key_values=key_values, limit=limit, burst=burst)
        return self._namespace.change(OverrideStatus, "PUT", target, body)

    def overrides(self, rule: str, *, limit: int | None = None, after: str | None = None) -> Page[OverrideStatus]:
        target = self._namespace.path("limiter/rules/{}/overrides", rule, limit=limit, after=after)
        return self._namespace.get(Page[OverrideStatus], target)

    def delete_override(self, rule: str, name: str) -> None:
        self._namespace.delete(self._namespace.path("limiter/rules/{}/overrides/{}", rule, name))


class RuleSets:
    """`client.rule_sets`: named sets of rules that are replaced whole or not at all."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def put(self, name: str, rules: Sequence[Rule | SetRuleStatus], *, overrides: SetOverrides = "closed") -> RuleSetChanges:
        """Makes the set exactly these rules, in one step. In an `open` set clients may make overrides of their own."""
        target = self._namespace.path("limiter/rule-sets/{}", name)
        return self._namespace.change(RuleSetChanges, "PUT", target, _set_of(rules, overrides))

    def diff(self, name: str, rules: Sequence[Rule | SetRuleStatus], *, overrides: SetOverrides = "closed") -> RuleSetChanges:
        """What `put` would do. Changes nothing."""
        target = self._namespace.path("limiter/rule-sets/{}", name, dry_run="true")
        return self._namespace.change(RuleSetChanges, "PUT", target, _set_of(rules, overrides))

    def list(self, *, limit: int | None = None, after: str | None = None) -> Page[RuleSetInfo]:
        target = self._namespace.path("limiter/rule-sets", limit=limit, after=after)
        return self._namespace.get(Page[RuleSetInfo], target)

    def get(self, name: str) -> RuleSet:
        return self._namespace.get(RuleSet, self._namespace.path("limiter/rule-sets/{}", name))

    def delete(self, name: str) -> None:
        """Deletes the set and its rules."""
        self._namespace.delete(self._namespace.path("limiter/rule-sets/{}", name))


class Counters:
    """`client.counters`: what is in use under exact key-values."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def add(self, key_values: KeyValues, counters: int) -> CounterReply:
        """Takes (positive) or gives back (negative). Raises `Refused` if a limit is reached."""
        body = {"key_values": key_values, "counters": counters}
        return self._namespace.change(CounterReply, "POST", self._namespace.path("limiter/counters"), body)

    def set(self, key_values: KeyValues, counters: int) -> Counter:
        """Sets the part that no lease holds, whatever the rules say. Removes the counter at 0."""
        body = {"key_values": key_values, "counters": counters}
        return self._namespace.change(Counter, "PUT", self._namespace.path("limiter/counters/set"), body)

    def query(self, where: Mapping[str, Any] | None = None, **query: Any) -> Page[Counter]:
        """Finds counters by their key-values."""
        body = {**fields(where=where), **query}
        return self._namespace.query(Page[Counter], self._namespace.path("limiter/counters/query"), body)


class Leases:
    """`client.leases`: who holds slots. Leases are taken by `client.lease`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def list(self, *, owner: str | None = None, limit: int | None = None, after: str | None = None) -> Page[LeaseStatus]:
        target = self._namespace.path("limiter/leases", owner=owner, limit=limit, after=after)
        return self._namespace.get(Page[LeaseStatus], target)

    def get(self, lease_id: str) -> LeaseStatus:
        return self._namespace.get(LeaseStatus, self._namespace.path("limiter/leases/{}", lease_id))

    def release_by_force(self, lease_id: str) -> None:
        """Ends a lease of somebody else: for operators."""
        self._namespace.release(self._namespace.path("limiter/leases/{}", lease_id, force="true"))


def _set_of(rules: Sequence[Rule | SetRuleStatus], overrides: SetOverrides) -> dict[str, Any]:
    return {"rules": list(rules), "overrides": overrides}
