//! The report of events: submissions, fan-out to followers, and events that fall due.

use super::{Events, Kind, Section, due, fan_out::Step};
use crate::frame::{Family, LATENCIES, Rows, Table, latencies, optional, write_table};
use std::fmt::{self, Write};

pub(super) fn write(events: &Events, section: Section, rows: &Rows<Kind>) -> Result<String, fmt::Error> {
    let mut text = String::new();
    match section {
        Section::Submissions => write_table(&mut text, &rows.table(Events::UNIT))?,
        Section::FanOut => events.write_fan_out(&mut text)?,
        Section::Due => events.write_due(&mut text)?,
    }
    Ok(text)
}

impl Events {
    fn write_fan_out(&self, text: &mut String) -> fmt::Result {
        let mut table = Table::new(&format!(
            "changes/s requested | changes/s | submission p99 ms | deliveries/s | missing | {LATENCIES} | since answer p50 ms | p99 ms | CPUs server | CPUs client"
        ));
        for Step { asked, submissions, deliveries, since_answer, missing } in &self.fan_out {
            let (server, own) = deliveries.processors();
            let mut cells = vec![
                asked.to_string(),
                format!("{:.0}", submissions.rate()),
                format!("{:.2}", submissions.quantile_ms(0.99)),
                format!("{:.0}", deliveries.rate()),
                missing.to_string(),
            ];
            cells.extend(latencies(deliveries));
            cells.extend([0.5, 0.99].map(|quantile| format!("{:.2}", since_answer.quantile_ms(quantile))));
            cells.extend([optional(server, 2), format!("{own:.2}")]);
            table.rows.push(cells);
        }
        writeln!(text, "{table}")?;
        writeln!(
            text,
            "The stream has {} followers. Latencies of deliveries count from the time at which the event was due to be submitted. \
             A delivery that arrives before the answer to the submission counts as 0 since the answer.\n",
            self.options.subscribers
        )
    }

    fn write_due(&self, text: &mut String) -> fmt::Result {
        let Some(due::Figure { events, within, before, meanwhile }) = &self.due else { return Ok(()) };
        let mut table = Table::new(&format!("submissions | count | {LATENCIES}"));
        for (name, measured) in [("before", before), ("while they fall due", meanwhile)] {
            let mut cells = vec![name.to_owned(), measured.operations.to_string()];
            cells.extend(latencies(measured));
            table.rows.push(cells);
        }
        writeln!(text, "{table}")?;
        writeln!(text, "{events} events fell due within {:.0} ms.", within.as_secs_f64() * 1000.0)
    }
}
