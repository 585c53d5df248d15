//! Files in one directory, and nothing else: all that the journal asks of an operating system.
//!
//! The trait is this small so that [`SimulatedDisk`] can be an honest model of a disk that loses power.

mod os;
mod simulated;

pub use os::OsDisk;
pub use simulated::SimulatedDisk;

use std::io;

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// The names of the files, in ascending order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new, empty file; an existing one of that name is emptied.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// An existing file, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// When it returns, every create, rename and remove before it survives a loss of power.
    fn sync_dir(&self) -> io::Result<()>;
    /// How many bytes more the file system takes.
    fn available(&self) -> io::Result<u64>;
    /// How to call the file in messages to a person.
    fn path(&self, name: &str) -> String;
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills the buffer from `offset` on; returns how much there was before the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of the bytes at `offset`; the file grows where needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// When it returns, all that was written, and the length, survive a loss of power. After a failure nothing is
    /// known about what was written since the last success, and a later success says nothing about it either.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
