//! Reading the values of a limit, over HTTP, after many operations were finished.

use super::{
    FILL, Ledger,
    workload::{Client, Operations, operation_id},
};
use crate::{
    Failed,
    load::{Contender, Random},
    measure::Measured,
};
use std::time::Instant;

/// Latencies of one client that reads the values of one limit after the other.
pub(super) struct Values {
    pub(super) latest: Measured,
    /// As of an operation that held something in the limit.
    pub(super) as_of_own: Measured,
    /// As of any operation.
    pub(super) as_of_any: Measured,
}

/// The time as of which values are read.
enum AsOf {
    Now,
    AnyOperation,
    OwnOperation,
}

/// Reads values as of the operations that were filled in.
pub(super) async fn measure<C: Contender<Client: Client>>(
    ledger: &Ledger,
    contender: &C,
) -> Result<Values, Failed> {
    let (options, work) = (&ledger.options, &ledger.work);
    let connections = ledger.batches().connections;
    let each = usize::try_from(options.fill.div_ceil(connections as u64))?;
    // The first limit of each operation that was filled in, by client.
    let held = |client| Operations::new(work.clone(), FILL, client).first_limits(each);
    let held: Vec<Vec<u32>> = (0..connections).map(held).collect();
    let mut random = Random::new(0);
    let mut client = contender.connect().await?;
    let mut measure = async |moment: AsOf| {
        let mut measured = Measured::new();
        let begin = Instant::now();
        while begin.elapsed() < options.common.seconds {
            let (connection, number) = (random.below(connections), random.below(each));
            let operation = operation_id(FILL, connection, number as u64);
            let any_limit = random.below(options.limits);
            let (limit, as_of) = match moment {
                AsOf::Now => (any_limit, None),
                AsOf::AnyOperation => (any_limit, Some(operation.as_str())),
                AsOf::OwnOperation => (held[connection][number] as usize, Some(operation.as_str())),
            };
            let asked = Instant::now();
            client.values(&work.limits[limit], as_of).await?;
            measured.note(1, 0, asked.elapsed());
        }
        measured.elapsed = begin.elapsed();
        Ok::<_, Failed>(measured)
    };
    Ok(Values {
        latest: measure(AsOf::Now).await?,
        as_of_own: measure(AsOf::OwnOperation).await?,
        as_of_any: measure(AsOf::AnyOperation).await?,
    })
}
