//! The ledger: limits as accounts. An operation *holds* amounts in one or more limits, all or none, and later *commits* the
//! holds or *rolls them back*. What is committed and held never exceeds a limit's ceiling.
//!
//! ```
//! use limina_embed::{Error, Limina, ledger::{Hold, NewLimit, Refusal}};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ledger = Limina::in_memory().await?.namespace("shop")?.ledger();
//! ledger.create_limit(NewLimit::new("daily").ceiling(1_000)).await?;
//!
//! let order = Hold::new("order-17").change("daily", 600).expires_after(Duration::from_secs(900));
//! let held = ledger.hold(order).await?;
//! assert_eq!(held.values[0].hold_value, 600);
//!
//! match ledger.hold(Hold::new("order-18").change("daily", 600)).await {
//!     Err(Error::Refused(Refusal::LimitExceeded { limits })) => assert_eq!(limits[0].available, 400),
//!     other => panic!("{other:?}"),
//! }
//! // The customer sent one item back: 450 of the 600 count, the rest is free again.
//! let committed = ledger.commit_part("order-17", [("daily", 450)]).await?;
//! assert_eq!(committed.values[0].commit_value, 450);
//! # Ok(())
//! # }
//! ```

use crate::{
    Error, Invalid, Listed, Name, Position,
    call::{Caller, failure, millis, mismatched, page, reply},
    error::name,
};
use limina_engine::ledger::{Command, Finish, Patch, Reply};
pub use limina_engine::ledger::{
    Context, Entry, EntryType, ExceededLimit, FinalizationReply, HoldReply, HoldState, Limit, LimitValue,
    Nearness, Operation, OperationHold, Refusal, State, ValuesReply,
};
use limina_engine::{Command as AnyCommand, Outcome, ledger as engine};
use std::time::Duration;

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The ledger of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ledger {
    caller: Caller,
}

/// A limit to create.
#[derive(Debug, Clone)]
pub struct NewLimit {
    name: String,
    limit_id: Option<String>,
    context: Vec<(String, String)>,
    ceiling: Option<i64>,
}

/// Changes of a limit. What is not mentioned stays as it is.
#[derive(Debug, Clone, Default)]
pub struct LimitPatch {
    ceiling: Option<Option<i64>>,
    context: Option<Vec<(String, String)>>,
}

/// What an operation holds, in one or more limits: all of it or nothing.
#[derive(Debug, Clone)]
pub struct Hold {
    operation_id: String,
    changes: Vec<(NewLimit, i64)>,
    skip_existing_holds: bool,
    create_missing: bool,
    expires_after: Option<Duration>,
}

/// One item of a [batch](Ledger::batch).
#[derive(Debug, Clone)]
pub enum Transfer {
    /// Hold.
    Hold(Hold),
    /// Commit all open holds of this operation at their held values.
    Commit(String),
    /// Commit these values of an operation's holds.
    CommitPart(String, Vec<(String, i64)>),
    /// Roll back all open holds of this operation.
    Rollback(String),
    /// Roll back an operation's holds in these limits.
    RollbackPart(String, Vec<String>),
}

/// What one item of a [batch](Ledger::batch) did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferReply {
    /// A hold.
    Held(HoldReply),
    /// A commit or a rollback.
    Finished(FinalizationReply),
}

/// The moment for which [`Ledger::values_as_of`] reads values.
#[derive(Debug, Clone)]
pub enum AsOf {
    /// The operation's view: the position of its last request that held something.
    Operation(String),
    /// After the change at this position, and before the next one.
    Position(Position),
}

impl NewLimit {
    /// A limit with this name, without a ceiling.
    pub fn new(name: impl Into<String>) -> NewLimit {
        NewLimit { name: name.into(), limit_id: None, context: Vec::new(), ceiling: None }
    }

    /// The sum of commits and positive open holds that the limit must not exceed.
    #[must_use]
    pub fn ceiling(mut self, ceiling: i64) -> NewLimit {
        self.ceiling = Some(ceiling);
        self
    }

    /// Your own id for the limit. Limina only stores and returns it.
    #[must_use]
    pub fn limit_id(mut self, id: impl Into<String>) -> NewLimit {
        self.limit_id = Some(id.into());
        self
    }

    /// Adds a text about the limit under a key. Limina only stores and returns it.
    #[must_use]
    pub fn context(mut self, key: impl Into<String>, text: impl Into<String>) -> NewLimit {
        self.context.push((key.into(), text.into()));
        self
    }

    /// A hold in this limit, which may create it.
    pub(crate) fn build_change(self, value: i64) -> std::result::Result<engine::Change, Invalid> {
        let engine::NewLimit { name, limit_id, context, ceiling, .. } = self.build("limit_name")?;
        Ok(engine::Change { limit_name: name, value, limit_id, context, ceiling })
    }

    /// `field` is the name of the limit in the arguments of the call.
    fn build(self, field: &str) -> std::result::Result<engine::NewLimit, Invalid> {
        let NewLimit { name: text, limit_id, context, ceiling } = self;
        let limit_id = limit_id.map(|id| name("limit_id", &id)).transpose()?;
        let context = Context::new(context)?;
        Ok(engine::NewLimit { limit_id, context, ceiling, ..engine::NewLimit::new(name(field, &text)?) })
    }
}

impl LimitPatch {
    /// No changes yet.
    pub fn new() -> LimitPatch {
        LimitPatch::default()
    }

    /// Another ceiling, or none. A ceiling below what is committed and held takes effect for later holds.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Option<i64>) -> LimitPatch {
        self.ceiling = Some(ceiling);
        self
    }

    /// Replaces the texts about the limit.
    #[must_use]
    pub fn context<K: Into<String>, T: Into<String>>(
        mut self,
        texts: impl IntoIterator<Item = (K, T)>,
    ) -> LimitPatch {
        self.context = Some(texts.into_iter().map(|(key, text)| (key.into(), text.into())).collect());
        self
    }

    fn build(self, limit_name: &str) -> std::result::Result<Command, Invalid> {
        let ceiling = match self.ceiling {
            None => Patch::Keep,
            Some(None) => Patch::Remove,
            Some(Some(ceiling)) => Patch::Set(ceiling),
        };
        let context = match self.context {
            None => Patch::Keep,
            Some(entries) => Patch::Set(Context::new(entries)?),
        };
        let patch = engine::LimitPatch { ceiling, context };
        Ok(Command::PatchLimit { name: name("name", limit_name)?, patch })
    }
}

impl Hold {
    /// A hold of this operation, without changes yet. You choose the operation id. A second hold of the same operation in
    /// the same limit is refused with [`Refusal::DuplicateOperation`], so a repeated request never counts twice.
    pub fn new(operation_id: impl Into<String>) -> Hold {
        Hold {
            operation_id: operation_id.into(),
            changes: Vec::new(),
            skip_existing_holds: false,
            create_missing: false,
            expires_after: None,
        }
    }

    /// Holds an amount in a limit. The amount may be negative or 0. Each limit may be named once.
    #[must_use]
    pub fn change(mut self, limit_name: impl Into<String>, value: i64) -> Hold {
        self.changes.push((NewLimit::new(limit_name), value));
        self
    }

    /// Holds an amount in a limit that is created with this id, context and ceiling if it does not exist.
    #[must_use]
    pub fn change_or_create(mut self, limit: NewLimit, value: i64) -> Hold {
        self.changes.push((limit, value));
        self.create_missing = true;
        self
    }

    /// Skips limits in which the operation already has an open hold of the same amount, instead of refusing the whole
    /// request.
    #[must_use]
    pub fn skip_existing_holds(mut self) -> Hold {
        self.skip_existing_holds = true;
        self
    }

    /// Creates limits that do not exist, instead of refusing the request.
    #[must_use]
    pub fn create_missing(mut self) -> Hold {
        self.create_missing = true;
        self
    }

    /// Rolls the holds back automatically if they are neither committed nor rolled back within this time.
    #[must_use]
    pub fn expires_after(mut self, duration: Duration) -> Hold {
        self.expires_after = Some(duration);
        self
    }

    fn build(self) -> std::result::Result<engine::Hold, Invalid> {
        let change = |(index, (limit, value)): (usize, (NewLimit, i64))| {
            limit.build_change(value).map_err(|invalid| invalid.within_item("changes", index))
        };
        let changes = self.changes.into_iter().enumerate().map(change);
        let changes = changes.collect::<std::result::Result<_, Invalid>>()?;
        let hold = engine::Hold::new(name("operation_id", &self.operation_id)?, changes)?;
        hold.with_skip_existing_holds(self.skip_existing_holds)
            .with_create_missing(self.create_missing)
            .with_expires_after(self.expires_after.map(millis))
    }
}

/// Which operations [`Ledger::operations`] lists: those with at least one hold that meets all conditions.
#[derive(Debug, Clone, Default)]
pub struct OperationFilter {
    only_held: bool,
    older_than: Option<Duration>,
    limit_name: Option<String>,
}

impl OperationFilter {
    /// All operations.
    pub fn all() -> OperationFilter {
        OperationFilter::default()
    }

    /// Operations with an open hold.
    pub fn held() -> OperationFilter {
        OperationFilter { only_held: true, ..OperationFilter::default() }
    }

    /// The hold was made longer ago than this.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> OperationFilter {
        self.older_than = Some(age);
        self
    }

    /// The hold is in this limit.
    #[must_use]
    pub fn in_limit(mut self, limit_name: impl Into<String>) -> OperationFilter {
        self.limit_name = Some(limit_name.into());
        self
    }

    fn build(self) -> std::result::Result<engine::OperationFilter, Invalid> {
        Ok(engine::OperationFilter {
            only_held: self.only_held,
            older_than: self.older_than.map(millis),
            limit_name: self.limit_name.map(|text| name("limit_name", &text)).transpose()?,
        })
    }
}

impl From<Hold> for Transfer {
    fn from(hold: Hold) -> Transfer {
        Transfer::Hold(hold)
    }
}

impl Transfer {
    fn build(self) -> std::result::Result<engine::Transfer, Invalid> {
        let (finish, operation_id, changes) = match self {
            Transfer::Hold(hold) => return Ok(engine::Transfer::Hold(hold.build()?)),
            Transfer::Commit(operation_id) => (Finish::Commit, operation_id, None),
            Transfer::CommitPart(operation_id, values) => {
                let values = values.into_iter().map(|(limit, value)| (limit, Some(value))).collect();
                (Finish::Commit, operation_id, Some(values))
            }
            Transfer::Rollback(operation_id) => (Finish::Rollback, operation_id, None),
            Transfer::RollbackPart(operation_id, limits) => {
                let limits = limits.into_iter().map(|limit| (limit, None)).collect();
                (Finish::Rollback, operation_id, Some(limits))
            }
        };
        let change = |(index, (limit, value)): (usize, (String, Option<i64>))| {
            let limit_name =
                name("limit_name", &limit).map_err(|invalid| invalid.within_item("changes", index))?;
            Ok(engine::FinalizationChange { limit_name, value })
        };
        let changes: Option<Vec<(String, Option<i64>)>> = changes;
        let changes = changes
            .map(|changes| {
                changes.into_iter().enumerate().map(change).collect::<std::result::Result<_, Invalid>>()
            })
            .transpose()?;
        let operation_id = name("operation_id", &operation_id)?;
        Ok(engine::Transfer::Finish(finish, engine::Finalization::new(operation_id, changes)?))
    }
}

impl Ledger {
    pub(crate) fn new(caller: Caller) -> Ledger {
        Ledger { caller }
    }

    /// A handle whose next write is done once, however often it is repeated under this key within a day: repetitions return
    /// the reply of the first. Use a key for one request only; another request under it fails with
    /// [`Failure::IdempotencyKeyReused`](crate::Failure::IdempotencyKeyReused). Reads ignore the key.
    ///
    /// ```
    /// # use limina_embed::{Limina, ledger::{Hold, NewLimit}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ledger = Limina::in_memory().await?.namespace("shop")?.ledger();
    /// let create = ledger.idempotency_key("setup-1")?;
    /// let first = create.create_limit(NewLimit::new("daily")).await?;
    /// let again = create.create_limit(NewLimit::new("daily")).await?;
    /// assert_eq!(first, again);
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(&self, key: &str) -> std::result::Result<Ledger, Invalid> {
        Ok(Ledger { caller: self.caller.with_idempotency_key(key)? })
    }

    /// Creates a limit.
    pub async fn create_limit(&self, limit: NewLimit) -> Result<Limit> {
        let command = Command::CreateLimit(limit.build("name")?);
        reply!(self.call(command).await, Reply::Limit(limit) => limit)
    }

    /// Changes a limit's ceiling or context.
    pub async fn patch_limit(&self, limit_name: &str, patch: LimitPatch) -> Result<Limit> {
        reply!(self.call(patch.build(limit_name)?).await, Reply::Limit(limit) => limit)
    }

    /// Deletes a limit with its history. It is refused with [`Refusal::LimitInUse`] while a hold is open in the limit. A
    /// limit that is created later under the same name is another one.
    pub async fn delete_limit(&self, limit_name: &str) -> Result<()> {
        let command = Command::DeleteLimit(name("name", limit_name)?);
        reply!(self.call(command).await, Reply::LimitDeleted => ())
    }

    /// Reads a limit.
    pub async fn limit(&self, limit_name: &str) -> Result<Limit> {
        let command = Command::GetLimit(name("name", limit_name)?);
        reply!(self.call(command).await, Reply::Limit(limit) => limit)
    }

    /// The limits by name: at most `limit` of those that follow `after`.
    pub async fn limits(&self, after: Option<&Name>, limit: usize) -> Result<Listed<Limit, Name>> {
        let command = Command::ListLimits(page(after, limit)?);
        reply!(self.call(command).await, Reply::Limits(listed) => listed)
    }

    /// The limits nearest to their ceilings, at most `limit`, among the next few thousand limits that follow `after` by name.
    /// Continue behind `next`, and compare the [nearness](Nearness::of) of the results, to search all limits.
    pub async fn limits_by_use(&self, after: Option<&Name>, limit: usize) -> Result<Listed<Limit, Name>> {
        let command = Command::ListLimitsByUse(page(after, limit)?);
        reply!(self.call(command).await, Reply::LimitsByUse(listed) => listed)
    }

    /// Sets when the open holds of an operation expire: this long from now, or never.
    pub async fn extend(&self, operation_id: &str, expires_after: Option<Duration>) -> Result<Operation> {
        let operation_id = name("operation_id", operation_id)?;
        let command = Command::Extend(engine::Extend::new(operation_id, expires_after.map(millis))?);
        reply!(self.call(command).await, Reply::Operation(operation) => operation)
    }

    /// Holds amounts in several limits, all or none.
    pub async fn hold(&self, hold: Hold) -> Result<HoldReply> {
        match self.transfer(hold.into()).await? {
            TransferReply::Held(reply) => Ok(reply),
            TransferReply::Finished(_) => Err(Error::Failed(mismatched())),
        }
    }

    /// Commits all open holds of an operation at their held values. Repeating it returns the same reply.
    pub async fn commit(&self, operation_id: &str) -> Result<FinalizationReply> {
        self.finish(Transfer::Commit(operation_id.to_owned())).await
    }

    /// Commits these values of an operation's holds, each at most what is held and of the same sign. The rest of each
    /// hold is freed. Holds in limits that are not named stay open.
    pub async fn commit_part<L: Into<String>>(
        &self,
        operation_id: &str,
        values: impl IntoIterator<Item = (L, i64)>,
    ) -> Result<FinalizationReply> {
        let values = values.into_iter().map(|(limit, value)| (limit.into(), value)).collect();
        self.finish(Transfer::CommitPart(operation_id.to_owned(), values)).await
    }

    /// Rolls back all open holds of an operation. Repeating it returns the same reply.
    pub async fn rollback(&self, operation_id: &str) -> Result<FinalizationReply> {
        self.finish(Transfer::Rollback(operation_id.to_owned())).await
    }

    /// Rolls back an operation's holds in these limits. Holds in other limits stay open.
    pub async fn rollback_part<L: Into<String>>(
        &self,
        operation_id: &str,
        limits: impl IntoIterator<Item = L>,
    ) -> Result<FinalizationReply> {
        let limits = limits.into_iter().map(Into::into).collect();
        self.finish(Transfer::RollbackPart(operation_id.to_owned(), limits)).await
    }

    /// Does several transfers in order, each on its own: one that is refused does not affect the others. The results are in
    /// the same order.
    pub async fn batch(
        &self,
        transfers: impl IntoIterator<Item = Transfer>,
    ) -> Result<Vec<std::result::Result<TransferReply, Refusal>>> {
        let transfer = |(index, transfer): (usize, Transfer)| {
            transfer.build().map_err(|invalid| invalid.within_item("operations", index))
        };
        let transfers = transfers.into_iter().enumerate().map(transfer);
        let transfers = transfers.collect::<std::result::Result<_, Invalid>>()?;
        let command = Command::Batch(engine::Batch::new(transfers)?);
        let results: Vec<std::result::Result<Reply, Refusal>> =
            reply!(self.call(command).await, Reply::Batch(results) => results)?;
        let result = |result: std::result::Result<Reply, Refusal>| match result {
            Ok(reply) => Ok(Ok(TransferReply::of(reply)?)),
            Err(refusal) => Ok(Err(refusal)),
        };
        results.into_iter().map(result).collect()
    }

    /// The values of limits now, in the order of the names.
    pub async fn values<'n>(&self, limit_names: impl IntoIterator<Item = &'n str>) -> Result<ValuesReply> {
        self.read_values(limit_names, engine::AsOf::Now).await
    }

    /// The values of limits as they were at an earlier moment.
    pub async fn values_as_of<'n>(
        &self,
        limit_names: impl IntoIterator<Item = &'n str>,
        as_of: AsOf,
    ) -> Result<ValuesReply> {
        let as_of = match as_of {
            AsOf::Operation(id) => engine::AsOf::Operation(name("as_of_operation", &id)?),
            AsOf::Position(position) => engine::AsOf::Position(position),
        };
        self.read_values(limit_names, as_of).await
    }

    async fn read_values<'n>(
        &self,
        limit_names: impl IntoIterator<Item = &'n str>,
        as_of: engine::AsOf,
    ) -> Result<ValuesReply> {
        let limit_names = limit_names.into_iter().map(|text| name("limit_names", text));
        let limit_names = limit_names.collect::<std::result::Result<_, Invalid>>()?;
        let command = Command::Values(engine::Values::new(limit_names, as_of)?);
        reply!(self.call(command).await, Reply::Values(values) => values)
    }

    /// Reads the state of an operation in every limit.
    pub async fn operation(&self, operation_id: &str) -> Result<Operation> {
        let command = Command::GetOperation(name("operation_id", operation_id)?);
        reply!(self.call(command).await, Reply::Operation(operation) => operation)
    }

    /// The operations that the filter finds, by id: at most `limit` of those that follow `after`. A page may be short, or
    /// even empty, although `next` says that more follow.
    pub async fn operations(
        &self,
        filter: OperationFilter,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Listed<Operation, Name>> {
        let command = Command::ListOperations { filter: filter.build()?, page: page(after, limit)? };
        reply!(self.call(command).await, Reply::Operations(listed) => listed)
    }

    /// The history of a limit by position: at most `limit` entries that follow `after`.
    pub async fn entries(
        &self,
        limit_name: &str,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Listed<Entry, Position>> {
        let limit_name = name("limit_name", limit_name)?;
        let command = Command::ListEntries { limit_name, page: page(after.as_ref(), limit)? };
        reply!(self.call(command).await, Reply::Entries(listed) => listed)
    }

    async fn finish(&self, transfer: Transfer) -> Result<FinalizationReply> {
        match self.transfer(transfer).await? {
            TransferReply::Finished(reply) => Ok(reply),
            TransferReply::Held(_) => Err(Error::Failed(mismatched())),
        }
    }

    async fn transfer(&self, transfer: Transfer) -> Result<TransferReply> {
        TransferReply::of(self.call(Command::Transfer(transfer.build()?)).await?)
    }

    async fn call(&self, command: Command) -> Result<Reply> {
        match self.caller.call(AnyCommand::Ledger(command)).await? {
            Outcome::Ledger(Ok(reply)) => Ok(reply),
            Outcome::Ledger(Err(refusal)) => Err(Error::Refused(refusal)),
            outcome => Err(Error::Failed(failure(&outcome))),
        }
    }
}

impl TransferReply {
    fn of(reply: Reply) -> Result<TransferReply> {
        match reply {
            Reply::Hold(reply) => Ok(TransferReply::Held(reply)),
            Reply::Finalization(reply) => Ok(TransferReply::Finished(reply)),
            _ => Err(Error::Failed(mismatched())),
        }
    }
}
