//! A temporary copy of the table that fjall may open.
//!
//! fjall cannot open a database for reading only: it truncates its log, removes files that no version lists, and
//! compacts. So it gets a temporary directory with copies of the small files, and symbolic links to the large ones,
//! which it never writes to again.

use super::fjall_files;
use crate::StoreError;
use std::{
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// The temporary directory. It is removed when this is dropped.
pub(super) struct Shadow {
    path: PathBuf,
}

impl Shadow {
    pub(super) fn of(table: &Path) -> Result<Shadow, StoreError> {
        let failed = |error| StoreError::io("copying", table.display().to_string(), error);
        let table = std::fs::canonicalize(table).map_err(failed)?;
        let random = getrandom::u64().map_err(|error| failed(std::io::Error::other(error)))?;
        let path = std::env::temp_dir().join(format!("limina-verify-{random:016x}"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| StoreError::io("creating", path.display().to_string(), error))?;
        let shadow = Shadow { path };
        copy_folder(&table, &shadow.path).map_err(failed)?;
        Ok(shadow)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // If this fails, only small files are left behind.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let of_tables = from.file_name().is_some_and(|name| name == "tables");
    for path in fjall_files::files(from) {
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        if path.is_dir() {
            std::fs::create_dir(&target)?;
            copy_folder(&path, &target)?;
        } else if of_tables {
            std::os::unix::fs::symlink(&path, &target)?;
        } else if path.extension().is_some_and(|extension| extension == "jnl") {
            std::fs::write(&target, fjall_files::read_without_zeros(&path)?)?;
        } else {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
