//! A way to the database that can be cut and mended.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::{cluster::free_address, harness::eventually};

pub(crate) struct Link {
    near: SocketAddr,
    far: SocketAddr,
    state: Option<Arc<Open>>,
}

/// While the link is whole.
struct Open {
    listener: TcpListener,
    /// Every socket of every connection; none any more once it is cut.
    sockets: Mutex<Option<Vec<TcpStream>>>,
}

impl Link {
    /// To a port of this machine; cut, to begin with.
    pub(crate) fn to(port: u16) -> Link {
        Link { near: free_address(), far: ([127, 0, 0, 1], port).into(), state: None }
    }

    /// Where the database seems to be.
    pub(crate) fn port(&self) -> u16 {
        self.near.port()
    }

    #[track_caller]
    pub(crate) fn mend(&mut self) {
        // A process that another test starts at this moment has a copy of every socket until it runs its own program.
        let listener = eventually(|| TcpListener::bind(self.near).ok()).expect("listen");
        let open = Arc::new(Open { listener, sockets: Mutex::new(Some(Vec::new())) });
        let (accepting, far) = (Arc::clone(&open), self.far);
        std::thread::spawn(move || {
            while let Ok((near, _)) = accepting.listener.accept() {
                if accepting.connect(near, far).is_err() {
                    return;
                }
            }
        });
        self.state = Some(open);
    }

    /// Every connection breaks, and none is accepted any more.
    pub(crate) fn cut(&mut self) {
        let Some(open) = self.state.take() else { return };
        for socket in open.sockets.lock().unwrap().take().into_iter().flatten() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // Wakes whoever accepts, who finds that it is cut.
        let _ = TcpStream::connect(self.near);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Open {
    /// Fails once the link is cut.
    fn connect(&self, near: TcpStream, far: SocketAddr) -> io::Result<()> {
        let far = TcpStream::connect(far)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let mut sockets = self.sockets.lock().unwrap();
        let sockets = sockets.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        for socket in [&near, &far] {
            sockets.push(socket.try_clone()?);
        }
        pump(near.try_clone()?, far.try_clone()?);
        pump(far, near);
        Ok(())
    }
}

/// Carries one direction until either side ends.
fn pump(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
