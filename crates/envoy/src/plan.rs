//! What a request asks: which limit each descriptor has, the command for the limiter, and the response.

use crate::{
    domain::{CountRefused, Domain, RateLimit, Unit},
    messages::{
        Code, CurrentLimit, DescriptorStatus, Duration, DynamicKind, DynamicValue, ListValue,
        RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Struct,
    },
    metadata, rules,
};
use limina_engine::{
    KeyValues, Name,
    key_values::Value,
    limiter::{AppliedLimit, CheckSet, Checked, EntryMode, Limit, MAX_COUNT, RequestLimit, SetEntry, Take},
};
use std::collections::{BTreeMap, BTreeSet};

/// Why a request cannot be decided. The text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(String);

impl InvalidRequest {
    fn of_descriptor(place: usize, reason: impl std::fmt::Display) -> InvalidRequest {
        InvalidRequest(format!("descriptors[{place}]: {reason}"))
    }
}

/// A request with the limits of its descriptors.
pub struct Plan<'a> {
    request: &'a RateLimitRequest,
    /// One for each descriptor of the request.
    descriptors: Vec<DescriptorPlan<'a>>,
    entries: Vec<SetEntry>,
}

/// How the limiter is asked about a descriptor.
enum DescriptorPlan<'a> {
    /// No limit applies, or another one replaces it.
    Free,
    Unlimited,
    /// It is asked as the entry of this number.
    AskedLimit(AskedLimit<'a>),
}

struct AskedLimit<'a> {
    entry: u32,
    unit: Unit,
    /// `None` for a limit that comes with the request.
    terms: Option<&'a RateLimit>,
    /// The rule that the limit has become. `None` for a limit that comes with the request.
    rule: Option<&'a Name>,
    /// The number of its quota group, in quota mode.
    group: Option<u16>,
}

impl<'a> Plan<'a> {
    /// Returns the namespace of a request. Fails if its domain cannot be one, or if it has no descriptors.
    pub fn check_request(request: &RateLimitRequest) -> Result<Name, InvalidRequest> {
        let namespace =
            Name::new(&request.domain).map_err(|error| InvalidRequest(format!("the domain {error}")))?;
        if request.descriptors.is_empty() {
            return Err(InvalidRequest("there must be at least one descriptor".to_owned()));
        }
        Ok(namespace)
    }

    /// Finds the limits of a request. Without a domain in the configuration, no descriptor has a limit, not even one that
    /// comes with the request.
    pub fn new(
        domain: Option<&'a Domain>,
        request: &'a RateLimitRequest,
        count_refused: CountRefused,
    ) -> Result<Plan<'a>, InvalidRequest> {
        Plan::check_request(request)?;
        let mut plan = Plan { request, descriptors: Vec::new(), entries: Vec::new() };
        let Some(domain) = domain else {
            plan.descriptors.extend(request.descriptors.iter().map(|_| DescriptorPlan::Free));
            return Ok(plan);
        };
        let found: Vec<Found<'a>> = request
            .descriptors
            .iter()
            .enumerate()
            .map(|(place, descriptor)| find(domain, place, descriptor))
            .collect::<Result<_, _>>()?;
        let replaced: BTreeSet<&str> = found.iter().flat_map(Found::replaces).collect();
        let mut groups = BTreeMap::new();
        for (place, (found, descriptor)) in found.into_iter().zip(&request.descriptors).enumerate() {
            let planned = match found {
                Found::Nothing => DescriptorPlan::Free,
                Found::Limit { terms, .. } if replaced.contains(&*terms.name) && !terms.is_unlimited() => {
                    DescriptorPlan::Free
                }
                Found::Limit { terms, rule } => match (terms.unit, rule) {
                    (Some(unit), Some((rule, key_values))) => {
                        let next = u16::try_from(groups.len()).unwrap_or(u16::MAX);
                        let group =
                            terms.quota.then(|| *groups.entry(quota_group(descriptor)).or_insert(next));
                        let take = plan.take(place, descriptor, key_values, None)?;
                        let asked =
                            AskedLimit { entry: 0, unit, terms: Some(terms), rule: Some(rule), group };
                        plan.ask(descriptor, take, count_refused, asked)
                    }
                    _ => DescriptorPlan::Unlimited,
                },
                Found::Given { limit, unit, key_values } => {
                    let take = plan.take(place, descriptor, key_values, Some(limit))?;
                    let asked = AskedLimit { entry: 0, unit, terms: None, rule: None, group: None };
                    plan.ask(descriptor, take, count_refused, asked)
                }
            };
            plan.descriptors.push(planned);
        }
        Ok(plan)
    }

    fn take(
        &self,
        place: usize,
        descriptor: &RateLimitDescriptor,
        key_values: KeyValues,
        limit: Option<RequestLimit>,
    ) -> Result<Take, InvalidRequest> {
        let hits = match descriptor.hits_addend {
            Some(hits) => hits.value,
            None => self.request.hits_addend.max(1).into(),
        };
        let hits = i64::try_from(hits).ok().filter(|hits| hits.unsigned_abs() <= MAX_COUNT);
        let hits =
            hits.ok_or_else(|| InvalidRequest::of_descriptor(place, "hits_addend is more than 2^53−1"))?;
        let signed = if descriptor.is_negative_hits { -hits } else { hits };
        let take = Take::new(key_values, signed).map_err(|invalid| {
            InvalidRequest::of_descriptor(place, format!("{}: {}", invalid.field(), invalid.reason()))
        })?;
        Ok(take.with_limit(limit))
    }

    fn ask(
        &mut self,
        descriptor: &RateLimitDescriptor,
        take: Take,
        count_refused: CountRefused,
        asked: AskedLimit<'a>,
    ) -> DescriptorPlan<'a> {
        let is_explicit = descriptor.hits_addend.is_some();
        let mode = match (take.hits(), count_refused) {
            (0, _) => EntryMode::Look,
            (..0, _) | (_, CountRefused::Always) => EntryMode::Report,
            (_, CountRefused::Explicit) if is_explicit => EntryMode::Report,
            (_, CountRefused::Explicit | CountRefused::Never) => EntryMode::Take,
        };
        let entry = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push(SetEntry::new(take, mode).with_alternative(asked.group));
        DescriptorPlan::AskedLimit(AskedLimit { entry, ..asked })
    }

    /// The command for the limiter. `None` if there is nothing to ask: then the response is [`Plan::respond`] without a decision.
    pub fn command(&mut self) -> Result<Option<CheckSet>, InvalidRequest> {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return Ok(None);
        }
        let set = CheckSet::new(entries)
            .map_err(|invalid| InvalidRequest(format!("{}: {}", invalid.field(), invalid.reason())))?;
        Ok(Some(set))
    }

    /// Whether every limit that was asked for is among those of the decision. Otherwise the namespace does not have the rules of the
    /// configuration with which this plan was made, and the decision means nothing.
    pub fn has_all_rules(&self, decision: &Checked) -> bool {
        self.asked().all(|(_, asked)| {
            let is_own =
                |limit: &AppliedLimit| limit.entry == asked.entry && limit.rule.as_ref() == asked.rule;
            decision.limits.iter().any(is_own)
        })
    }

    /// The response for the limiter's decision.
    pub fn respond(&self, decision: Option<&Checked>) -> RateLimitResponse {
        let is_allowed = decision.is_none_or(|decision| decision.allowed);
        let limits = decision.map_or(&[][..], |decision| &decision.limits);
        let statuses: Vec<DescriptorStatus> =
            self.descriptors.iter().map(|planned| planned.status(limits)).collect();
        let code = if is_allowed { Code::Ok } else { Code::OverLimit };
        let dynamic_metadata = self.has_metadata().then(|| self.metadata(&statuses));
        RateLimitResponse { overall_code: code.into(), statuses, dynamic_metadata }
    }

    fn asked(&self) -> impl Iterator<Item = (usize, &AskedLimit<'a>)> {
        self.descriptors.iter().enumerate().filter_map(|(place, planned)| match planned {
            DescriptorPlan::AskedLimit(asked) => Some((place, asked)),
            DescriptorPlan::Free | DescriptorPlan::Unlimited => None,
        })
    }

    /// Only requests with a limit that has metadata, or is in quota mode, get metadata: nobody else uses them.
    fn has_metadata(&self) -> bool {
        let mut terms = self.asked().filter_map(|(_, asked)| asked.terms);
        terms.any(|terms| terms.metadata.is_some() || terms.quota)
    }

    /// The request, the metadata of the limits that it is within, and in quota mode the backends that have quota left.
    fn metadata(&self, statuses: &[DescriptorStatus]) -> Struct {
        let over = i32::from(Code::OverLimit);
        let exhausted: BTreeSet<u16> = self
            .asked()
            .filter(|(place, _)| statuses[*place].code == over)
            .filter_map(|(_, asked)| asked.group)
            .collect();
        let has_passed = |place: usize, group: Option<u16>| {
            statuses[place].code != over && group.is_none_or(|group| !exhausted.contains(&group))
        };
        let mut of_limits = Struct::default();
        for (place, asked) in self.asked() {
            if let Some(more) = asked.terms.and_then(|terms| terms.metadata.as_ref())
                && has_passed(place, asked.group)
            {
                metadata::merge(&mut of_limits, more);
            }
        }
        let mut result = metadata::of_request(self.request);
        if !of_limits.fields.is_empty() {
            result.fields.insert("metadata".to_owned(), DynamicKind::StructValue(of_limits).into());
        }
        if self.asked().any(|(_, asked)| asked.group.is_some()) {
            let passed = self.descriptors.iter().enumerate().filter(|(place, planned)| match planned {
                DescriptorPlan::AskedLimit(asked) => has_passed(*place, asked.group),
                DescriptorPlan::Free => true,
                DescriptorPlan::Unlimited => false,
            });
            let backends = passed_backends(passed.map(|(place, _)| &self.request.descriptors[place]));
            if !backends.is_empty() {
                let list = DynamicKind::ListValue(ListValue { values: backends });
                result.fields.insert("passedBackends".to_owned(), list.into());
            }
        }
        result
    }
}

impl DescriptorPlan<'_> {
    fn status(&self, limits: &[AppliedLimit]) -> DescriptorStatus {
        let free = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        match self {
            DescriptorPlan::Free => free,
            DescriptorPlan::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..free },
            DescriptorPlan::AskedLimit(asked) => {
                let own = limits.iter().filter(|limit| limit.entry == asked.entry);
                // Rules of clients may apply too. The one that refuses, or is nearest to it, is shown.
                let shown = own.min_by_key(|limit| (!limit.refuses(), limit.remaining.unwrap_or(u64::MAX)));
                shown.map_or(free, |limit| asked.status(limit))
            }
        }
    }
}

impl AskedLimit<'_> {
    fn status(&self, limit: &AppliedLimit) -> DescriptorStatus {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let requests_per_unit = match limit.limit {
            Limit::AtMost(limit) => small(limit),
            Limit::Unlimited => u32::MAX,
        };
        let name = self.terms.map_or("", |terms| &*terms.name).to_owned();
        let (code, remaining) = match limit.refuses() {
            true => (Code::OverLimit, 0),
            false => (Code::Ok, limit.remaining.unwrap_or(u64::MAX)),
        };
        // Whole seconds, rounded up, as the original has them: Envoy shows the seconds alone in its headers.
        let reset = limit.reset_ms.map(|reset| i64::try_from(reset.0.div_ceil(1_000)).unwrap_or(i64::MAX));
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(CurrentLimit { name, requests_per_unit, unit: self.unit.code().into() }),
            limit_remaining: small(remaining),
            duration_until_reset: reset.map(|seconds| Duration { seconds, nanos: 0 }),
        }
    }
}

impl RateLimit {
    fn is_unlimited(&self) -> bool {
        self.unit.is_none()
    }
}

/// What the configuration, or the request, says about a descriptor.
enum Found<'a> {
    Nothing,
    /// `rule`, with the key-values that it is asked with, is `None` if the limit is unlimited.
    Limit {
        terms: &'a RateLimit,
        rule: Option<(&'a Name, KeyValues)>,
    },
    Given {
        limit: RequestLimit,
        unit: Unit,
        key_values: KeyValues,
    },
}

impl<'a> Found<'a> {
    fn replaces(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let replaces: &'a [Box<str>] = match self {
            Found::Limit { terms, .. } => &terms.replaces,
            Found::Nothing | Found::Given { .. } => &[],
        };
        replaces.iter().map(|name| &**name)
    }
}

fn find<'a>(
    domain: &'a Domain,
    place: usize,
    descriptor: &RateLimitDescriptor,
) -> Result<Found<'a>, InvalidRequest> {
    let Some(given) = &descriptor.limit else {
        let Some(resolved) = domain.resolve(&descriptor.entries) else { return Ok(Found::Nothing) };
        return Ok(Found::Limit { terms: resolved.terms, rule: resolved.rule() });
    };
    let unknown = || InvalidRequest::of_descriptor(place, "the limit has no unit that is known");
    let unit = Unit::from_code(given.unit()).ok_or_else(unknown)?;
    let limit = RequestLimit::new(given.requests_per_unit.into(), unit.per());
    let limit = limit.expect("a limit of 32 bits and a window of at most 365 days are within their bounds");
    let pairs: Vec<(String, Value<String>)> = descriptor
        .entries
        .iter()
        .enumerate()
        .map(|(place, entry)| {
            let key = rules::shorten(format!("{place}:{}", entry.key), KeyValues::MAX_KEY_BYTES);
            let value = rules::shorten(entry.value.clone(), KeyValues::MAX_STRING_BYTES);
            (key, Value::String(value))
        })
        .collect();
    let key_values = KeyValues::new(pairs)
        .map_err(|invalid| InvalidRequest::of_descriptor(place, format!("entries: {}", invalid.reason())))?;
    Ok(Found::Given { limit, unit, key_values })
}

const BACKEND: &str = "backend_name";
const MODEL: &str = "model_name_override";

/// The backend and the model of a descriptor; of several entries the last one counts.
fn backend_and_model(descriptor: &RateLimitDescriptor) -> (&str, &str) {
    let last = |key: &str| {
        let mut found = descriptor.entries.iter().rev().filter(|entry| entry.key == key);
        found.next().map_or("", |entry| entry.value.as_str())
    };
    (last(BACKEND), last(MODEL))
}

/// Descriptors of one backend and model are alternatives together: all of them must pass. Without either, the descriptor is an
/// alternative of its own.
fn quota_group(descriptor: &RateLimitDescriptor) -> Vec<(&str, &str)> {
    match backend_and_model(descriptor) {
        ("", "") => {
            descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect()
        }
        (backend, model) => vec![(BACKEND, backend), (MODEL, model)],
    }
}

fn passed_backends<'r>(passed: impl Iterator<Item = &'r RateLimitDescriptor>) -> Vec<DynamicValue> {
    let mut seen = BTreeSet::new();
    let pairs = passed.map(backend_and_model).filter(|pair| *pair != ("", "") && seen.insert(*pair));
    let text = |text: &str| DynamicValue::from(DynamicKind::StringValue(text.to_owned()));
    pairs
        .map(|(backend, model)| {
            let fields = [(BACKEND.to_owned(), text(backend)), (MODEL.to_owned(), text(model))];
            DynamicKind::StructValue(Struct { fields: fields.into() }).into()
        })
        .collect()
}
