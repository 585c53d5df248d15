//! A sample request as text, as a command of curl, and as Python.

use super::samples::{Call, Exchange};
use serde_json::Value;

/// The address in the snippets. The page's script replaces it by the address from which the page came.
pub(super) const ADDRESS: &str = "http://127.0.0.1:7070";

/// The request as it travels.
pub(super) fn http(exchange: &Exchange) -> String {
    let mut text = format!("{} {}", exchange.method, exchange.target);
    for (name, value) in &exchange.headers {
        text += &format!("\n{name}: {value}");
    }
    if !exchange.request.is_empty() {
        text += &format!("\n\n{}", exchange.request);
    }
    text
}

/// The request as a command. `--json` makes it a POST, and sends the media type.
pub(super) fn curl(exchange: &Exchange) -> String {
    let Exchange { method, target, headers, request, .. } = exchange;
    let mut command = "curl".to_owned();
    // An answer that never ends must not be buffered.
    if target.ends_with("/stream") {
        command += " -N";
    }
    let default = if request.is_empty() { "GET" } else { "POST" };
    if *method != default {
        command += &format!(" -X {method}");
    }
    let address = format!("{ADDRESS}{target}");
    command += &format!(" {}", if target.contains(['?', '&']) { quote(&address) } else { address });
    for (name, value) in headers {
        command += &format!(" \\\n  -H {}", quote(&format!("{name}: {value}")));
    }
    if !request.is_empty() {
        let option = if headers.is_empty() { "--json" } else { "-d" };
        command += &format!(" \\\n  {option} {}", quote(request));
    }
    command
}

/// An argument in single quotes, for a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The call by the Python client. A call that the client does not have is sent with the HTTP library that is installed with the client.
pub(super) fn python(call: &Call, exchange: &Exchange) -> String {
    match &call.python {
        Some(python) => {
            let others = if python.imports.is_empty() { "" } else { ", " };
            format!(
                "from limina import Limina{others}{}\n\nclient = Limina(\"{ADDRESS}\")\n{}",
                python.imports, python.code
            )
        }
        None => plain_python(exchange),
    }
}

fn plain_python(exchange: &Exchange) -> String {
    let Exchange { method, target, headers, request, .. } = exchange;
    let mut arguments = format!("\"{ADDRESS}{target}\"");
    if !headers.is_empty() {
        let headers: Vec<String> =
            headers.iter().map(|(name, value)| format!("\"{name}\": \"{value}\"")).collect();
        arguments += &format!(", headers={{{}}}", headers.join(", "));
    }
    if !request.is_empty() {
        match serde_json::from_str::<Value>(request) {
            // Apart from three words, JSON is Python.
            Ok(_) => arguments += &format!(", json={}", with_python_words(request)),
            Err(_) => arguments += &format!(", content=\"{request}\""),
        }
    }
    let verb = method.to_lowercase();
    match target.ends_with("/stream") {
        true => format!(
            "import httpx2\n\nwith httpx2.stream(\"{method}\", {arguments}) as response:\n    \
             for line in response.iter_lines():\n        print(line)"
        ),
        false => format!("import httpx2\n\nresponse = httpx2.{verb}({arguments})\nprint(response.text)"),
    }
}

fn with_python_words(json: &str) -> String {
    [("true", "True"), ("false", "False"), ("null", "None")]
        .iter()
        .fold(json.to_owned(), |text, (json, python)| {
            text.replace(&format!(": {json}"), &format!(": {python}"))
        })
}
