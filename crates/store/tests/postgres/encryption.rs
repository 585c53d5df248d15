//! Encrypted connections, and which certificates they trust.

use crate::database::{client, connect};
use limina_pg_server::PgServer;
use limina_store::{ShardId, StoreError, Table};
use std::io::Write;

/// Created by the server itself, in its data directory, where it looks for them.
const MAKE_CERTIFICATE: &str = "COPY (SELECT 1) TO PROGRAM 'openssl req -x509 -newkey rsa:2048 -nodes -days 2
    -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE
    -keyout server.key -out server.crt && chmod 600 server.key'";

#[tokio::test]
async fn only_trusted_servers_are_used() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let plain = server.url(&server.new_database().expect("a database"));
    let owner = client(&plain).await;
    owner.batch_execute(&MAKE_CERTIFICATE.replace('\n', " ")).await.expect("a certificate");
    owner.batch_execute("ALTER SYSTEM SET ssl = on").await.expect("a setting");
    let certificate: String =
        owner.query_one("SELECT pg_read_file('server.crt')", &[]).await.expect("the certificate").get(0);
    server.crash_and_restart().expect("restart");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(certificate.as_bytes()).expect("written");
    let (by_name, trusted) = (plain.replace("127.0.0.1", "localhost"), file.path().display());

    let opened = connect(&format!("{by_name}?sslmode=verify-full&sslrootcert={trusted}"), 1).await;
    let store = opened.expect("its certificate is trusted");
    store.applied(ShardId(0)).await.expect("applied");
    let sessions = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name = 'limina'";
    let observer = client(&plain).await;
    assert!(observer.query_one(sessions, &[]).await.expect("a look").get::<_, bool>(0));
    drop(store);

    let unknown = connect(&format!("{by_name}?sslmode=require"), 1).await;
    assert!(matches!(unknown, Err(StoreError::Unusable(_))), "nobody knows who signed it");
    let another = connect(&format!("{plain}?sslmode=require&sslrootcert={trusted}"), 1).await;
    assert!(matches!(another, Err(StoreError::Unusable(_))), "it is for another name");
    for refused in ["sslmode=prefer", "sslmode=require&sslrootcert=/nowhere"] {
        let refused = connect(&format!("{plain}?{refused}"), 1).await;
        assert!(matches!(refused, Err(StoreError::Unusable(_))));
    }
}
