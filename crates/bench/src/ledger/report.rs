//! The report of the ledger.

use super::{Kind, Ledger, values::Values};
use crate::{
    frame::{Family, Kind as _, LATENCIES, Rows, Table, latencies, mib, write_table},
    measure::Measured,
};
use std::fmt::{self, Write};

/// A contender that was measured again after many operations.
pub(super) struct Filled {
    pub(super) kind: Kind,
    /// Rate and memory before the operations.
    pub(super) empty_rate: f64,
    pub(super) empty_resident: Option<u64>,
    /// The measurement of the filling itself.
    pub(super) fill: Measured,
    pub(super) again: Measured,
    pub(super) resident: Option<u64>,
    /// Only of Limina over HTTP.
    pub(super) values: Option<Values>,
}

pub(super) fn write(rows: &Rows<Kind>, filled: &[Filled]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    write_table(&mut text, &rows.table(Ledger::UNIT))?;
    writeln!(text, "An op is one hold or one commit. A latency is that of a request, with all its ops.")?;
    if let Some(ratio) = rows.ratio(Kind::Http, Kind::Echo) {
        writeln!(
            text,
            "Limina over HTTP, one op a request, reaches {ratio:.2} of the rate of the echo server."
        )?;
    }
    text.push('\n');
    write_filled(&mut text, filled)?;
    write_values(&mut text, filled.iter().filter_map(|filled| filled.values.as_ref()))?;
    Ok(text)
}

fn write_filled(text: &mut String, filled: &[Filled]) -> fmt::Result {
    let mut table = Table::new(&format!(
        "contender | operations filled in | at ops/s | ops/s then | ÷ empty | {LATENCIES} | MiB empty | MiB then"
    ));
    for Filled { kind, empty_rate, empty_resident, fill, again, resident, .. } in filled {
        let mut cells = vec![
            kind.name(),
            // Each operation is held and committed.
            (fill.operations / 2).to_string(),
            format!("{:.0}", fill.rate()),
            format!("{:.0}", again.rate()),
            format!("{:.2}", again.rate() / empty_rate),
        ];
        cells.extend(latencies(again));
        cells.extend([mib(*empty_resident), mib(*resident)]);
        table.rows.push(cells);
    }
    write_table(text, &table)
}

fn write_values<'a>(text: &mut String, values: impl Iterator<Item = &'a Values>) -> fmt::Result {
    let mut table = Table::new(&format!("values of one limit, one client | reads/s | {LATENCIES}"));
    for Values { latest, as_of_own, as_of_any } in values {
        for (name, measured) in [
            ("latest", latest),
            ("as of an operation that held in it", as_of_own),
            ("as of any operation", as_of_any),
        ] {
            let mut cells = vec![name.to_owned(), format!("{:.0}", measured.rate())];
            cells.extend(latencies(measured));
            table.rows.push(cells);
        }
    }
    write_table(text, &table)
}
