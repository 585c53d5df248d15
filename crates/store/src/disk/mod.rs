//! The files of one directory: all that the journal needs of an operating system.
//!
//! The trait is this small so that [`SimulatedDisk`] can model a disk that loses power faithfully.

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
    /// Creates an empty file. An existing file of that name is truncated.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Renames a file. A file that has the new name is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// When this returns, every earlier create, rename and remove survives a loss of power.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that the file system still has available.
    fn available(&self) -> io::Result<u64>;
    /// The file's full path, for messages.
    fn path(&self, name: &str) -> String;
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills the buffer from `offset` on. Returns the number of bytes read, which is less than the buffer's length only
    /// at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes at `offset`. The file grows if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// When this returns, everything that was written, and the file's length, survive a loss of power. After a failed
    /// sync, nothing written since the last successful one can be relied on, and a later successful sync does not
    /// change that.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
