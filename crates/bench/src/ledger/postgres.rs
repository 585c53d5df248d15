//! PostgreSQL doing the same in SQL, synced at every transaction; `postgres.sql` is what it does.

use super::workload::{CEILING, Client, Operation, limit_name};
use crate::{
    Failed,
    load::Contender,
    process::{Process, eventually, free_address},
};
use rustix::process::{Signal, geteuid};
use std::{
    fs,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tokio_postgres::{NoTls, Row, Statement, error::SqlState};

pub(crate) struct Postgres {
    process: Process,
    address: SocketAddr,
}

/// The first three are the defaults: nothing is answered before it is on disk. The others help it: more memory, fewer
/// checkpoints, and look-ups by index from the first row on, which its statistics would suggest only later.
const SETTINGS: [&str; 12] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=1000",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "autovacuum_naptime=5s",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "unix_socket_directories=",
];

impl Postgres {
    pub(crate) async fn start(directory: &Path) -> Result<Postgres, Failed> {
        let programs = programs()?;
        let data = directory.join("postgres");
        fs::create_dir(&data)?;
        if geteuid().is_root() {
            // It refuses to run as root.
            run(Command::new("chown").args(["-R", "postgres:"]).arg(directory))?;
        }
        let mut make = as_postgres(&programs.join("initdb"));
        let make =
            make.args(["--username=bench", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata"]);
        run(make.arg(&data).current_dir(directory))?;

        let address = free_address()?;
        let mut serve = as_postgres(&programs.join("postgres"));
        serve.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &address.port().to_string()]);
        serve.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let log = fs::File::create(directory.join("postgres.log"))?;
        serve.current_dir(directory).stderr(log);
        // SIGINT ends it without waiting for its clients.
        let postgres = Postgres { process: Process::start(&mut serve, Signal::INT)?, address };
        let client = eventually(async || postgres.client().await).await?;
        client.batch_execute(include_str!("postgres.sql")).await?;
        Ok(postgres)
    }

    async fn client(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port()).user("bench").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// The newest version that is installed.
fn programs() -> Result<PathBuf, Failed> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.filter(|version| version.path().join("bin/initdb").is_file());
    let newest = versions.max_by_key(|version| {
        version
            .file_name()
            .to_string_lossy()
            .split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect::<Vec<u32>>()
    });
    let newest = newest.ok_or("there is no PostgreSQL in /usr/lib/postgresql: run `cargo xtask rivals`")?;
    Ok(newest.path().join("bin"))
}

/// The program, as another user where we are root.
fn as_postgres(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
    command
}

fn run(command: &mut Command) -> Result<(), Failed> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("running {program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

impl Contender for Postgres {
    type Client = Session;

    async fn connect(&self) -> Result<Session, Failed> {
        let client = self.client().await?;
        let (hold, commit) = (
            client.prepare("SELECT * FROM hold($1, $2, 1)").await?,
            client.prepare("SELECT * FROM commit_hold($1)").await?,
        );
        let (hold_many, commit_many) = (
            client.prepare("SELECT * FROM hold_many($1, $2, 1)").await?,
            client.prepare("SELECT * FROM commit_many($1)").await?,
        );
        Ok(Session { client, hold, commit, hold_many, commit_many })
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.id())
    }

    async fn stop(self) -> Result<(), Failed> {
        self.process.stop()
    }
}

pub(crate) struct Session {
    client: tokio_postgres::Client,
    hold: Statement,
    commit: Statement,
    hold_many: Statement,
    commit_many: Statement,
}

impl Client for Session {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        let names: Vec<String> = limits.map(limit_name).collect();
        let insert = "INSERT INTO limits (name, ceiling) SELECT one, $2 FROM unnest($1::text[]) AS one";
        self.client.execute(insert, &[&names, &CEILING]).await?;
        self.client.batch_execute("ANALYZE limits").await?;
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        if let [operation] = operations {
            let names: Vec<String> = operation.limits.iter().copied().map(limit_name).collect();
            return refused(1, self.client.query(&self.hold, &[&operation.id, &names]).await);
        }
        let pairs =
            operations.iter().flat_map(|one| one.limits.iter().map(|&limit| (&one.id, limit_name(limit))));
        let (ids, names): (Vec<&String>, Vec<String>) = pairs.unzip();
        refused(operations.len(), self.client.query(&self.hold_many, &[&ids, &names]).await)
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        if let [operation] = operations {
            return refused(1, self.client.query(&self.commit, &[&operation.id]).await);
        }
        let ids: Vec<&String> = operations.iter().map(|operation| &operation.id).collect();
        refused(operations.len(), self.client.query(&self.commit_many, &[&ids]).await)
    }
}

/// How many of `count` were refused, which is all or none.
fn refused(count: usize, result: Result<Vec<Row>, tokio_postgres::Error>) -> Result<u64, Failed> {
    match result {
        Ok(rows) if !rows.is_empty() => Ok(0),
        Ok(_) => Err("PostgreSQL answered without values".into()),
        Err(error) if error.code() == Some(&SqlState::RAISE_EXCEPTION) => Ok(count as u64),
        Err(error) => Err(error.into()),
    }
}
