//! `[quotas]` in the configuration file: for every namespace, and below it a table for each pattern of names.

use limina_engine::{Quota, QuotaTable, quotas::QuotaSection};
use serde::{Deserialize, Deserializer, de::Error};
use std::collections::BTreeMap;

/// The section `[quotas]`.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    all: QuotaSection,
    patterns: BTreeMap<String, QuotaSection>,
}

impl Quotas {
    pub(crate) fn into_table(self) -> QuotaTable {
        QuotaTable::new(self.all, self.patterns)
    }
}

impl<'de> Deserialize<'de> for Quotas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quotas, D::Error> {
        let mut quotas = Quotas::default();
        for (key, value) in BTreeMap::<String, toml::Value>::deserialize(deserializer)? {
            match value {
                toml::Value::Table(table) => {
                    let stated = table.iter().map(|(key, value)| stated(key, value));
                    quotas.patterns.insert(key, stated.collect::<Result<_, _>>().map_err(Error::custom)?);
                }
                value => {
                    let (quota, limit) = stated(&key, &value).map_err(Error::custom)?;
                    quotas.all.insert(quota, limit);
                }
            }
        }
        Ok(quotas)
    }
}

/// One quota. `None` lifts the quota that a less specific section states.
fn stated(key: &str, value: &toml::Value) -> Result<(Quota, Option<u64>), String> {
    let quota = Quota::from_name(key).ok_or_else(|| {
        let known = Quota::ALL.map(Quota::name).join(", ");
        format!("unknown quota `{key}`, expected one of {known}")
    })?;
    let limit = match value {
        toml::Value::Integer(number) => u64::try_from(*number).ok().map(Some),
        toml::Value::String(word) if word == "unlimited" => Some(None),
        _ => None,
    };
    match limit {
        Some(limit) => Ok((quota, limit)),
        None => Err(format!("the quota `{key}` must be a whole number from 0 on, or \"unlimited\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::Name;

    #[test]
    fn subtables_are_patterns_and_other_keys_are_quotas() {
        let text = "rules = 10\ncounters = 5\n[\"shop-*\"]\nrules = \"unlimited\"\n[rules-eu]\nrules = 3";
        let table = toml::from_str::<Quotas>(text).unwrap().into_table();
        let check = |namespace: &str, rules: Option<u64>| {
            let quotas = table.of(&Name::new(namespace).unwrap());
            assert_eq!((quotas.get(Quota::Rules), quotas.get(Quota::Counters)), (rules, Some(5)));
        };
        check("other", Some(10));
        check("shop-1", None);
        check("rules-eu", Some(3));
    }
}
