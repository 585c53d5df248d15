//! Who is let in at all.

use super::{Identity, Origin, denials::Denials};
use crate::http::problem::Failure;
use limina_access::{Access, Token};
use limina_engine::Caller;
use std::sync::Arc;

/// Who is let in at all: the clients with a token, or everybody.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    /// Origins of other sites that browsers may come from.
    origins: Vec<Origin>,
    denials: Denials,
}

#[derive(Debug)]
enum Mode {
    Tokens(Access),
    /// The server listens on loopback addresses only, so that the clients are programs on the same machine, and pages in
    /// browsers on the same machine, which must be kept out.
    Loopback,
    Anyone,
}

impl Policy {
    /// Every client needs a token, except for the routes without data.
    pub fn tokens(access: Access) -> Policy {
        Policy::new(Mode::Tokens(access))
    }

    /// Everybody on this machine is let in, except pages of other sites in a browser.
    pub fn loopback() -> Policy {
        Policy::new(Mode::Loopback)
    }

    /// Everybody who reaches the server is let in, except pages of other sites in a browser.
    pub fn anyone() -> Policy {
        Policy::new(Mode::Anyone)
    }

    fn new(mode: Mode) -> Policy {
        Policy { mode, origins: Vec::new(), denials: Denials::default() }
    }

    /// Lets browsers in that show pages of these origins.
    pub fn allow_origins(mut self, origins: Vec<Origin>) -> Policy {
        self.origins.extend(origins);
        self
    }

    /// Logs a denied attempt.
    pub(crate) fn log_denial(&self, identity: &Identity, operation: &str, failure: &Failure) {
        let needs = failure.field_text("needs").unwrap_or_default();
        self.denials.log(identity, operation, needs, failure.reason());
    }

    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }

    pub(super) fn is_loopback(&self) -> bool {
        matches!(self.mode, Mode::Loopback)
    }

    pub(crate) fn has_tokens(&self) -> bool {
        matches!(self.mode, Mode::Tokens(_))
    }

    /// The client that presents this token. `None` if the server has tokens, and this is none of them.
    pub(crate) fn identify(&self, presented: Option<&[u8]>, caller: Caller) -> Option<Identity> {
        match &self.mode {
            Mode::Tokens(access) => {
                let token: Arc<Token> = access.find(presented?)?;
                Some(Identity::new(access.clone(), token, caller))
            }
            Mode::Loopback | Mode::Anyone => Some(Identity::anyone(caller)),
        }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::loopback()
    }
}
