//! Plays one conformance script.

use crate::{
    calls::{self, Held, Outcome},
    matching::{Variables, compare, substitute, substitute_text},
    servers::{Proxy, closed_port},
};
use futures_util::{FutureExt, future::BoxFuture};
use limina_client::{Error, Limina};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, task::JoinHandle};

#[derive(Deserialize)]
pub(crate) struct Script {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    client: Options,
    steps: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Options {
    timeout_ms: Option<u64>,
    retries: Option<u32>,
    token: Option<String>,
    #[serde(default)]
    closed_port: bool,
}

pub(crate) async fn play(script: &Script, server: &str, proxy: &Proxy) -> Result<(), String> {
    proxy.steer("DELETE", "/faults", None).await;
    proxy.steer("DELETE", "/requests", None).await;
    let mut player = Player::new(&script.client, server, proxy);
    let mut result = Ok(());
    for step in &script.steps {
        result = player.step(step).await.map_err(|why| format!("{step}\n    {why}"));
        if result.is_err() {
            break;
        }
    }
    player.end().await;
    result
}

struct Player<'p> {
    client: Limina,
    namespace: String,
    server: &'p str,
    proxy: &'p Proxy,
    http: reqwest::Client,
    variables: Variables,
    guards: Arc<Mutex<HashMap<String, Held>>>,
    started: HashMap<String, Vec<JoinHandle<Value>>>,
    followed: HashMap<String, Followed>,
}

/// A stream that is being followed from the start, whether or not somebody takes its messages.
struct Followed {
    messages: mpsc::UnboundedReceiver<Result<Value, Error>>,
    task: JoinHandle<()>,
}

impl<'p> Player<'p> {
    fn new(options: &Options, server: &'p str, proxy: &'p Proxy) -> Player<'p> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("ns-{}", COUNT.fetch_add(1, Relaxed));
        let url = if options.closed_port { closed_port() } else { proxy.url.clone() };
        // Without a word about it, the timeout is so long that no script fails on a busy machine.
        let timeout = Duration::from_millis(options.timeout_ms.unwrap_or(10_000));
        let mut builder = Limina::builder(url).namespace(&namespace).timeout(timeout);
        // The scripts test retries, also of a server that is slow or fails often.
        builder = builder.breaker(None);
        if let Some(retries) = options.retries {
            builder = builder.retries(retries);
        }
        if let Some(token) = &options.token {
            builder = builder.token(token);
        }
        let variables = [("$ns", namespace.clone()), ("$ns2", format!("{namespace}-2"))];
        Player {
            client: builder.build().unwrap(),
            namespace,
            server,
            proxy,
            http: reqwest::Client::new(),
            variables: variables.map(|(name, value)| (name.to_owned(), value.into())).into(),
            guards: Arc::default(),
            started: HashMap::new(),
            followed: HashMap::new(),
        }
    }

    async fn step(&mut self, step: &Value) -> Result<(), String> {
        let name = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let any_value = json!({"value": {}});
        let expect = step.get("expect").unwrap_or(&any_value);
        let kinds =
            ["server", "fault", "open", "call", "start", "join", "on", "follow", "next", "requests", "clear"];
        match kinds.into_iter().find(|kind| step.get(kind).is_some()) {
            Some("server" | "requests") => self.compare_until(step).await,
            Some("on") if step.get("do").is_none() => self.compare_until(step).await,
            Some("fault") => {
                let faults = match &step["fault"] {
                    Value::Array(faults) => faults.iter().map(|fault| self.absolute(fault)).collect(),
                    fault => vec![self.absolute(fault)],
                };
                self.proxy.steer("POST", "/faults", Some(&json!(faults))).await;
                Ok(())
            }
            Some("open") => {
                self.proxy.steer("POST", &format!("/gates/{}", name("open")), None).await;
                Ok(())
            }
            Some("clear") => {
                self.proxy.steer("DELETE", "/requests", None).await;
                Ok(())
            }
            Some("call") => {
                let outcome = self.begin(step).await;
                compare(expect, &outcome, &mut self.variables)
            }
            Some("start") => {
                let mut tasks = Vec::new();
                for one in step["start"].as_array().unwrap() {
                    for _ in 0..one["times"].as_u64().unwrap_or(1) {
                        let mut call = self.begin(one);
                        // The client has taken a call when its future was polled once.
                        tasks.push(match (&mut call).now_or_never() {
                            Some(outcome) => tokio::spawn(async { outcome }),
                            None => tokio::spawn(call),
                        });
                    }
                }
                self.started.insert(name("as"), tasks);
                Ok(())
            }
            Some("join") => {
                let mut outcomes = Vec::new();
                for task in self.started.remove(&name("join")).unwrap() {
                    outcomes.push(task.await.unwrap());
                }
                match step.get("expect") {
                    Some(expect) => compare(expect, &Value::Array(outcomes), &mut self.variables),
                    None => Ok(()),
                }
            }
            Some("on") => {
                let guard = self.guards.lock().unwrap().remove(&name("on"));
                let Some(guard) = guard else { return Err("there is no such guard".to_owned()) };
                let with = substitute(step.get("with").unwrap_or(&json!({})), &self.variables);
                let (result, guard) = calls::act(guard, &name("do"), &with).await;
                if let Some(guard) = guard {
                    self.guards.lock().unwrap().insert(name("on"), guard);
                }
                let outcome =
                    result.map_or_else(|error| calls::describe_error(&error), |()| json!({"value": {}}));
                compare(expect, &outcome, &mut self.variables)
            }
            Some("follow") => {
                let after = substitute(&step["after"], &self.variables).as_u64();
                self.followed.insert(name("as"), self.follow(&name("follow"), after));
                Ok(())
            }
            Some("next") => self.next(&name("next"), expect).await,
            _ => panic!("the script has an unknown step"),
        }
    }

    /// Compares, and with `await` repeats until it is as expected.
    async fn compare_until(&mut self, step: &Value) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = self.look(step).await?;
            let Some(expect) = step.get("expect") else { return Ok(()) };
            let mut variables = self.variables.clone();
            match compare(expect, &found, &mut variables) {
                Ok(()) => {
                    self.variables = variables;
                    return Ok(());
                }
                Err(why) if step["await"] != true || Instant::now() > deadline => return Err(why),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn look(&self, step: &Value) -> Result<Value, String> {
        if let Some(guard) = step["on"].as_str() {
            let guards = self.guards.lock().unwrap();
            return guards.get(guard).map(calls::describe).ok_or("there is no such guard".to_owned());
        }
        if let Some(pattern) = step["requests"].as_str() {
            let (method, path) = pattern.split_once(' ').unwrap();
            let path = if path.starts_with('/') { self.path(path) } else { path.to_owned() };
            let requests = self.proxy.steer("GET", "/requests", None).await;
            let mut found = requests.as_array().cloned().unwrap();
            found.retain(|one| one["method"] == method && glob(&path, one["path"].as_str().unwrap()));
            return Ok(Value::Array(found));
        }
        let request = substitute_text(step["server"].as_str().unwrap(), &self.variables);
        let (method, path) = request.split_once(' ').unwrap();
        let mut request =
            self.http.request(method.parse().unwrap(), format!("{}{}", self.server, self.path(path)));
        if let Some(body) = step.get("body") {
            request = request.json(&substitute(body, &self.variables));
        }
        let response = request.send().await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default();
        Ok(json!({"status": status, "body": body}))
    }

    fn begin(&self, step: &Value) -> BoxFuture<'static, Value> {
        let client = match step["namespace"].as_str() {
            Some(namespace) => self.client.with_namespace(&substitute_text(namespace, &self.variables)),
            None => self.client.clone(),
        };
        let name = step["call"].as_str().unwrap().to_owned();
        let with = substitute(step.get("with").unwrap_or(&json!({})), &self.variables);
        let keep_as = step["as"].as_str().map(str::to_owned);
        let guards = self.guards.clone();
        Box::pin(async move {
            match calls::call(&client, &name, with).await {
                Ok(Outcome::Value(value)) => json!({"value": value}),
                Ok(Outcome::Held(guard)) => {
                    let state = calls::describe(&guard);
                    if let Some(name) = keep_as {
                        guards.lock().unwrap().insert(name, *guard);
                    }
                    json!({"value": state})
                }
                Err(error) => calls::describe_error(&error),
            }
        })
    }

    fn follow(&self, stream: &str, after: Option<u64>) -> Followed {
        let mut follow = self.client.events().follow(stream);
        if let Some(clock) = after {
            follow = follow.after(clock);
        }
        let (sender, messages) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let next = follow.next().await;
                let ended = next.is_err();
                let next = next.map(|message| serde_json::to_value(message.into_inner()).unwrap());
                if sender.send(next).is_err() || ended {
                    return;
                }
            }
        });
        Followed { messages, task }
    }

    async fn next(&mut self, name: &str, expect: &Value) -> Result<(), String> {
        let wanted = match expect {
            Value::Array(messages) => messages.clone(),
            error => vec![error.clone()],
        };
        for expect in wanted {
            let messages = &mut self.followed.get_mut(name).unwrap().messages;
            let message = tokio::time::timeout(Duration::from_secs(30), messages.recv()).await;
            match message.map_err(|_| "no message arrived")?.ok_or("the stream has ended")? {
                Ok(message) => compare(&expect, &message, &mut self.variables)?,
                Err(error) => compare(&expect, &calls::describe_error(&error), &mut self.variables)?,
            }
        }
        Ok(())
    }

    async fn end(mut self) {
        self.proxy.steer("DELETE", "/faults", None).await;
        for followed in self.followed.values() {
            followed.task.abort();
        }
        for (_, tasks) in self.started.drain() {
            tasks.iter().for_each(JoinHandle::abort);
        }
        let guards: Vec<_> = self.guards.lock().unwrap().drain().collect();
        for (_, guard) in guards {
            let _ = calls::act(guard, "leave", &Value::Null).await;
        }
    }

    fn absolute(&self, fault: &Value) -> Value {
        let mut fault = substitute(fault, &self.variables);
        if let Some(path) = fault["path"].as_str() {
            fault["path"] = self.path(path).into();
        }
        fault
    }

    fn path(&self, path: &str) -> String {
        format!("/v1/ns/{}{path}", self.namespace)
    }
}

/// Whether a text matches a pattern, in which `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            text.char_indices()
                .map(|(place, _)| place)
                .chain([text.len()])
                .any(|place| glob(rest, &text[place..]))
        }),
    }
}
