//! Liminator's Thrift interface, with thriftpy2 and Liminator's IDL.

use serde_json::{Value, json};

use crate::clients::Client;
use crate::harness::Server;

/// A thriftpy2 client at this path.
struct Liminator(Client);

impl Liminator {
    fn at(server: &Server, path: &str) -> Liminator {
        let address = server.address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        Liminator(Client::python("liminator.py", &[&host, &port, path]))
    }

    #[track_caller]
    fn call(&mut self, function: &str, request: Value) -> Value {
        let mut command = request;
        command["call"] = json!(function);
        self.0.tell(&command.to_string());
        self.0.said()
    }

    #[track_caller]
    fn returns(&mut self, function: &str, request: Value, values: Value) {
        let told = self.call(function, request.clone());
        assert_eq!(told, json!({"result": values}), "{function} {request}");
    }

    #[track_caller]
    fn throws(&mut self, function: &str, request: Value, exception: &str) {
        let told = self.call(function, request.clone());
        assert_eq!(told, json!({"exception": exception}), "{function} {request}");
    }
}

fn request(operation: &str, limit: &str, value: i64) -> Value {
    json!({"operation_id": operation, "changes": [{"limit_name": limit, "value": value}]})
}

fn value(limit: &str, commit: i64, total: i64) -> Value {
    json!({"limit_id": null, "limit_name": limit, "commit_value": commit, "total_value": total})
}

#[test]
fn thriftpy2_holds_commits_rolls_back_and_reads() {
    let server = Server::fresh();
    let mut client = Liminator::at(&server, "/liminator/v1");
    let names = |name: &str| json!({"limit_names": [name]});
    // A missing limit is created, with its id and context. The same hold is accepted again.
    let first = json!({"operation_id": "op.1", "changes": [
        {"limit_id": "day", "limit_name": "lim/1", "value": 10, "context": {"terminal": "терминал"}},
        {"limit_name": "lim/2", "value": 3}]});
    let held = json!([
        {"limit_id": "day", "limit_name": "lim/1", "commit_value": 0, "total_value": 10},
        value("lim/2", 0, 3)
    ]);
    client.returns("Hold", first.clone(), held.clone());
    client.returns("Hold", first, held);
    server.ledger().get("/limits/lim%2F1").ok().has("context", json!({"terminal": "терминал"}));
    client.returns("Hold", json!({"operation_id": "op.0", "changes": []}), json!([]));
    client.throws("Hold", request("op.1", "lim/2", 4), "DuplicateOperation");
    // A part is committed. The same commit is accepted again, and no other one is.
    client.returns("Commit", request("op.1", "lim/1", 9), Value::Null);
    client.returns("Commit", request("op.1", "lim/1", 9), Value::Null);
    client.throws("Commit", request("op.1", "lim/2", 4), "OperationNotFound");
    client.throws("Rollback", request("op.1", "lim/1", 10), "OperationNotFound");
    client.throws("Commit", request("op.1", "none", 1), "LimitNotFound");
    client.throws("Hold", request("op.1", "lim/1", 10), "OperationAlreadyInFinalState");
    client.returns("Rollback", request("op.1", "lim/2", 3), Value::Null);
    client.returns("GetLastLimitsValues", names("lim/2"), json!([value("lim/2", 0, 0)]));
    client.throws("GetLastLimitsValues", names("none"), "LimitNotFound");
    // The values as they were when the operation held, in the old form of the protocol.
    let old =
        json!({"operation_id": "op.1", "changes": [{"limit_name": "lim/2", "value": 0}], "strict": false});
    client.returns("Get", old, json!([value("lim/2", 0, 3)]));
    // Another namespace has its own limits.
    let mut other = Liminator::at(&server, "/v1/ns/shop/liminator/v1");
    other.throws("GetLastLimitsValues", names("lim/1"), "LimitNotFound");
    other.returns("Hold", request("op.1", "lim/1", 1), json!([value("lim/1", 0, 1)]));
    let count = "limina_http_requests_total{family=\"ledger\",operation=\"liminator\"";
    let metrics = server.get("/metrics").ok().text;
    assert!(metrics.contains(count), "{metrics}");
}
