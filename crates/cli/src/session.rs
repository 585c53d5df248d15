//! What a command that asks a server works with.

use crate::{connection::Connection, output::Output};
use limina_client::Limina;

/// What every command has: the client, and where to write.
pub(crate) struct Session {
    pub(crate) client: Limina,
    pub(crate) connection: Connection,
    pub(crate) out: Output,
}
