//! `limina export` writes everything in a store to one file, and `limina import` creates a new store from such a file.

mod export;
mod file;
mod import;

use crate::progress::{Progress, say};
use file::{Header, Reader};
use limina_store::{
    embedded::{EmbeddedLoader, EmbeddedOptions, Finding, ReadOnlyStore},
    postgres::{PostgresLoader, PostgresSnapshot},
};
use std::{
    error::Error,
    fs::File,
    io::{BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::runtime::Runtime;

/// The file name that means standard output or standard input.
const STANDARD: &str = "-";
const BUFFER_BYTES: usize = 1 << 20;

/// The arguments of `export`.
#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The file to create, which must not exist yet; `-` is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The arguments of `import`.
#[derive(clap::Args, Debug)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Number of shards of the new store; it need not be that of the old one [default: 64]
    #[arg(long, env = "LIMINA_SHARDS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    shards: Option<u16>,
    /// The file that `limina export` wrote; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The store. The environment counts only if there is no flag, so that a flag for one kind of store comes before a variable
/// for the other kind.
#[derive(clap::Args, Debug)]
struct StoreArgs {
    /// Data directory; no server may be using it [env: LIMINA_DATA] [default: ./limina-data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// PostgreSQL database instead of a directory: postgres://user@host/database [env: LIMINA_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

enum Store {
    Directory(PathBuf),
    Postgres(String),
}

impl StoreArgs {
    fn resolve(self) -> Store {
        let directory = |data: Option<PathBuf>| {
            let data = data.or_else(|| std::env::var_os("LIMINA_DATA").map(PathBuf::from));
            Store::Directory(data.unwrap_or_else(|| PathBuf::from("./limina-data")))
        };
        match (self.store, self.data) {
            (Some(url), _) => Store::Postgres(url),
            (None, Some(data)) => directory(Some(data)),
            (None, None) => match std::env::var("LIMINA_STORE") {
                Ok(url) => Store::Postgres(url),
                Err(_) => directory(None),
            },
        }
    }
}

/// Writes everything in a store to a file.
pub(crate) fn export(args: ExportArgs) -> Result<(), Box<dyn Error>> {
    let store = args.store.resolve();
    if args.file == Path::new(STANDARD) {
        return write_export(store, BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock()));
    }
    let failed = |error| format!("the file {} cannot be made: {error}", args.file.display());
    // It contains secrets of clients, such as the sessions of locks.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&args.file).map_err(failed)?;
    let written = write_export(store, BufWriter::with_capacity(BUFFER_BYTES, &file))
        .and_then(|()| file.sync_all().map_err(|error| failed(error).into()));
    if written.is_err() {
        // This call created the file, and an incomplete export is useless.
        let _best_effort = std::fs::remove_file(&args.file);
    }
    written
}

fn write_export(store: Store, out: impl Write) -> Result<(), Box<dyn Error>> {
    let made_at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let header = Header { version: env!("CARGO_PKG_VERSION").to_string(), made_at };
    let mut progress = Progress::new();
    let runtime = Runtime::new()?;
    let totals = match store {
        Store::Directory(directory) => {
            let at_rest = Arc::new(at_rest(&directory, &mut progress)?);
            let shards = at_rest.shards();
            runtime.block_on(export::export(at_rest, shards, out, &header, &mut progress))?
        }
        Store::Postgres(url) => runtime.block_on(async {
            let snapshot = Arc::new(PostgresSnapshot::take(&url).await?);
            let shards = snapshot.shards();
            export::export(snapshot, shards, out, &header, &mut progress).await
        })?,
    };
    say(&format!("exported {totals}"));
    Ok(())
}

/// Opens a directory for export. A damaged directory is not exported.
fn at_rest(directory: &Path, progress: &mut Progress) -> Result<ReadOnlyStore, Box<dyn Error>> {
    let mut problem = None;
    let at_rest = ReadOnlyStore::check(directory, &mut |finding| match finding {
        Finding::Checked(_) | Finding::Note(_) => {}
        Finding::Problem(error) => problem = problem.take().or(Some(error)),
        Finding::Progress(words) => progress.report(|| words),
    })?;
    match (at_rest, problem) {
        (Some(at_rest), None) => Ok(at_rest),
        (_, Some(problem)) => Err(problem.into()),
        (None, None) => Err(format!("{} cannot be read", directory.display()).into()),
    }
}

/// Creates a new store from a file.
pub(crate) fn import(args: ImportArgs) -> Result<(), Box<dyn Error>> {
    let store = args.store.resolve();
    if args.file == Path::new(STANDARD) {
        return read_import(store, args.shards, "standard input", std::io::stdin().lock());
    }
    let name = args.file.display().to_string();
    let file = File::open(&args.file).map_err(|error| format!("the file {name} cannot be read: {error}"))?;
    read_import(store, args.shards, &name, file)
}

fn read_import(
    store: Store,
    shards: Option<u16>,
    name: &str,
    input: impl Read,
) -> Result<(), Box<dyn Error>> {
    // A file that is not an export is rejected before a store is created.
    let (reader, header, common) = Reader::open(BufReader::with_capacity(BUFFER_BYTES, input))
        .map_err(|error| import::Unreadable { name: name.to_string(), source: error })?;
    let age = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().saturating_sub(header.made_at / 1000);
    say(&format!("importing {name}, which limina {} made {age} s ago", header.version));
    let runtime = Runtime::new()?;
    let totals = match store {
        Store::Directory(directory) => {
            let options = EmbeddedOptions { shards, ..EmbeddedOptions::default() };
            let filling = EmbeddedLoader::begin(&directory, options)?;
            runtime.block_on(import::import(reader, name, common, filling))?
        }
        Store::Postgres(url) => runtime.block_on(async {
            let filling = PostgresLoader::begin(&url, shards).await?;
            import::import(reader, name, common, filling).await
        })?,
    };
    say(&format!("imported {totals}"));
    Ok(())
}
