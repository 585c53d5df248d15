//! A TCP proxy in front of the database, which a test can cut and restore.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::{cluster::free_address, harness::eventually};

pub(crate) struct Link {
    near: SocketAddr,
    far: SocketAddr,
    state: Option<Arc<Open>>,
}

/// The state of the link while it is open.
struct Open {
    listener: TcpListener,
    /// Every socket of every connection. `None` once the link is cut.
    sockets: Mutex<Option<Vec<TcpStream>>>,
}

impl Link {
    /// A link to a port of this machine, which starts cut.
    pub(crate) fn to(port: u16) -> Link {
        Link { near: free_address(), far: ([127, 0, 0, 1], port).into(), state: None }
    }

    /// The port at which the database seems to listen.
    pub(crate) fn port(&self) -> u16 {
        self.near.port()
    }

    #[track_caller]
    pub(crate) fn mend(&mut self) {
        // A process that another test starts at this moment has a copy of every socket until it executes its own
        // program. So binding the port may fail for a moment.
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

    /// Breaks every connection, and accepts no more connections.
    pub(crate) fn cut(&mut self) {
        let Some(open) = self.state.take() else { return };
        for socket in open.sockets.lock().unwrap().take().into_iter().flatten() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts connections, so that it notices the cut.
        let _ = TcpStream::connect(self.near);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Open {
    /// Connects both sides. Fails if the link is cut.
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

/// Copies one direction until either side ends.
fn pump(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
