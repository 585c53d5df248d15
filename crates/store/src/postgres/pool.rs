//! A few connections for many users.

use super::connection::{Connector, Link, Params};
use crate::StoreError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Row;

pub(super) struct Pool {
    free: Semaphore,
    links: Mutex<Vec<Link>>,
}

impl Pool {
    pub(super) fn new(connector: &Arc<Connector>, size: usize) -> Pool {
        let links = (0..size).map(|_| Link::new(connector.clone())).collect();
        Pool { free: Semaphore::new(size), links: Mutex::new(links) }
    }

    /// See [`Link::query`].
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut lease = self.lease().await?;
        let link = lease.link.as_mut().expect("it is given back at the end");
        link.query(sql, params).await
    }

    /// Closes all connections, and refuses whatever is asked from now on.
    pub(super) fn close(&self) {
        self.free.close();
        self.lock().clear();
    }

    async fn lease(&self) -> Result<Lease<'_>, StoreError> {
        let permit = self.free.acquire().await.map_err(|_| closed())?;
        let link = self.lock().pop().ok_or_else(closed)?;
        Ok(Lease { pool: self, link: Some(link), _permit: permit })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a question can be asked.
pub(super) trait Ask: Sync {
    /// One statement, which only reads.
    fn query(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}

impl Ask for Pool {
    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        Pool::query(self, sql, params).await
    }
}

/// A link that goes back to its pool.
struct Lease<'a> {
    pool: &'a Pool,
    link: Option<Link>,
    /// After the link, which is back when the next user is let in.
    _permit: SemaphorePermit<'a>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let link = self.link.take().filter(|_| !self.pool.free.is_closed());
        self.pool.lock().extend(link);
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_string())
}
