//! The page `/docs`: conventions, every call in the order of use, and every error code.

use super::{
    fields::{self, Schemas, text},
    html::{Language, attribute, escape, highlight, inline, is_code},
    samples::{Call, Exchange, FAMILIES, Family},
    snippets,
};
use crate::http::problem::Code;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt::Write};

/// Codes that almost every call can answer. A call lists them in one line, without repeating what they mean.
const COMMON: [Code; 15] = [
    Code::InvalidRequest,
    Code::Unauthorized,
    Code::Forbidden,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::AnswerTooLarge,
    Code::UnsupportedMediaType,
    Code::IdempotencyKeyReused,
    Code::IdempotencyKeyInUse,
    Code::QuotaExceeded,
    Code::Overloaded,
    Code::ShuttingDown,
    Code::StorageFull,
    Code::ShardUnavailable,
    Code::OutcomeUnknown,
];

/// An operation of the OpenAPI document.
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    value: &'a Value,
}

/// Renders the page from the OpenAPI document. It contains everything that a reader can search for or copy, so it is readable without
/// its script.
pub(super) fn page(openapi: &Value) -> String {
    let none = Map::new();
    let schemas = Schemas(openapi["components"]["schemas"].as_object().unwrap_or(&none));
    let operations = operations(openapi);
    let mut answered_by: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    let (mut contents, mut chapters) = (String::new(), String::new());
    for family in FAMILIES.iter() {
        _ = write!(
            contents,
            "<details open><summary><a href=\"#{0}\">{1}</a></summary><ul>",
            family.tag,
            escape(family.title)
        );
        chapters += &opening(openapi, family);
        for group in &family.groups {
            _ = write!(contents, "<li class=\"group\">{}</li>", escape(group.title));
            _ = write!(chapters, "<h3>{}</h3>", escape(group.title));
            for call in &group.calls {
                let Some(operation) = operations.get(call.operation_id) else { continue };
                _ = write!(
                    contents,
                    "<li><a href=\"#{}\">{}{}</a></li>",
                    call.operation_id,
                    method(operation.method),
                    escape(call.title)
                );
                chapters += &section(&schemas, call, operation);
                for code in codes(operation.value) {
                    answered_by.entry(code.word()).or_default().push(call);
                }
            }
        }
        contents += "</ul></details>";
        chapters += "</section>";
    }
    include_str!("../../../assets/docs/page.html")
        .replace("<!-- version -->", &escape(text(&openapi["info"], "version")))
        .replace("<!-- tests -->", &tests(&schemas))
        .replace("<!-- contents -->", &contents)
        .replace("<!-- chapters -->", &chapters)
        .replace("<!-- codes -->", &code_list())
        .replace("<!-- errors -->", &errors(&answered_by))
}

fn operations(openapi: &Value) -> BTreeMap<&str, Operation<'_>> {
    let paths = openapi["paths"].as_object().into_iter().flatten();
    let calls = paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, value)| Operation { method, path, value })
    });
    calls.map(|operation| (text(operation.value, "operationId"), operation)).collect()
}

/// The beginning of a chapter.
fn opening(openapi: &Value, family: &Family) -> String {
    let Family { tag, title, intro, .. } = family;
    let tags = openapi["tags"].as_array().into_iter().flatten();
    let about = tags.filter(|about| about["name"] == *tag).map(|about| text(about, "description"));
    let paragraphs = about.chain(intro.iter().copied()).map(|about| format!("<p>{}</p>", inline(about)));
    format!(
        "<section class=\"family\" id=\"{tag}\"><h2><a href=\"#{tag}\">{}</a></h2>{}",
        escape(title),
        paragraphs.collect::<String>()
    )
}

/// One call: what it does, its samples, and its fields. On a wide screen the samples stand beside the rest.
fn section<'a>(schemas: &Schemas<'a>, call: &Call, operation: &Operation<'a>) -> String {
    let id = call.operation_id;
    let mut html = format!(
        "<section class=\"call\" id=\"{id}\"><div class=\"head\"><h4><a href=\"#{id}\">{}</a></h4>\
         <p class=\"path\">{}<code>{}</code></p><p>{}</p>",
        escape(call.title),
        method(operation.method),
        with_breaks(operation.path),
        inline(text(operation.value, "summary")),
    );
    for paragraph in text(operation.value, "description").split("\n\n").filter(|text| !text.is_empty()) {
        let class = if paragraph.starts_with("Needs ") { " class=\"needs\"" } else { "" };
        _ = write!(html, "<p{class}>{}</p>", inline(paragraph));
    }
    html += "</div><div class=\"samples\">";
    for (n, exchange) in call.exchanges.iter().enumerate() {
        let python = (n == 0).then(|| snippets::python(call, exchange));
        html += &sample(exchange, python.as_deref());
    }
    html += "</div><div class=\"about\">";
    html += &parameters(schemas, operation.value, id);
    html += &bodies(schemas, call, operation.value);
    html += &problems(operation.value);
    html + "</div></section>\n"
}

/// A path that can be broken after each of its names, on a narrow screen.
fn with_breaks(path: &str) -> String {
    escape(path).replace('/', "<wbr>/")
}

fn method(method: &str) -> String {
    let word = method.to_uppercase();
    format!("<span class=\"method {}\">{}</span>", attribute(&method.to_lowercase()), escape(&word))
}

fn parameters<'a>(schemas: &Schemas<'a>, operation: &'a Value, id: &str) -> String {
    let mut html = String::new();
    for (place, title) in [("path", "Path"), ("query", "Query"), ("header", "Headers")] {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let here: Vec<_> = parameters
            .filter(|parameter| parameter["in"] == place)
            .map(|parameter| schemas.parameter(parameter))
            .collect();
        if !here.is_empty() {
            _ = write!(html, "<h5>{title}</h5>{}", fields::list(&here, &format!("{id}.{place}")));
        }
    }
    html
}

/// The fields of the request's body, and of the answer's.
fn bodies<'a>(schemas: &Schemas<'a>, call: &Call, operation: &'a Value) -> String {
    let mut html = String::new();
    let id = call.operation_id;
    let samples = |part: fn(&Exchange) -> &str| call.exchanges.iter().map(part).collect::<String>();
    if let Some((media_type, schema)) = content(&operation["requestBody"]) {
        let sample = samples(|exchange| exchange.request.as_str());
        html += &body(schemas, schema, &sample, &format!("{id}.body"), "Request", media_type);
    }
    let successes = operation["responses"].as_object().into_iter().flatten();
    let mut successes = successes.filter(|(status, _)| status.starts_with(['1', '2'])).peekable();
    // Two successes of a call differ in their status alone.
    if let Some((_, response)) = successes.peek().copied() {
        let statuses: Vec<String> = successes
            .map(|(status, response)| {
                format!("<p><b>{status}</b> {}</p>", inline(text(response, "description")))
            })
            .collect();
        _ = write!(html, "<h5>Answer</h5>{}", statuses.concat());
        if let Some((media_type, schema)) = content(response) {
            let sample = samples(|exchange| exchange.response.as_str());
            html += &body(schemas, schema, &sample, &format!("{id}.answer"), "", media_type);
        }
        let headers = response["headers"].as_object().into_iter().flatten();
        // A reference is the header of every answer, which the introduction describes.
        let headers = headers.filter(|(_, header)| header.get("$ref").is_none());
        let headers: Vec<String> = headers
            .map(|(name, header)| {
                format!("<p><code>{}</code> {}</p>", escape(name), inline(text(header, "description")))
            })
            .collect();
        if !headers.is_empty() {
            _ = write!(html, "<h5>Answer headers</h5>{}", headers.concat());
        }
    }
    html
}

fn body<'a>(
    schemas: &Schemas<'a>,
    schema: &'a Value,
    sample: &str,
    id: &str,
    title: &str,
    media_type: &str,
) -> String {
    let fields = schemas.fields(schema, sample);
    let title = if title.is_empty() { String::new() } else { format!("<h5>{title}</h5>") };
    let about = match media_type {
        "application/json" => String::new(),
        "text/event-stream" => {
            "<p>Server-sent events. The <code>data</code> of each is an object:</p>".to_owned()
        }
        other => format!("<p><code>{}</code>: {}</p>", escape(other), schemas.kind(schema)),
    };
    let list = if fields.is_empty() { String::new() } else { fields::list(&fields, id) };
    title + &about + &list
}

/// The first media type of a body, with its schema.
fn content(body: &Value) -> Option<(&str, &Value)> {
    let (media_type, content) = body["content"].as_object()?.iter().next()?;
    Some((media_type, &content["schema"]))
}

/// The problems that a call can answer: those of its own with what they mean here, then the common ones.
fn problems(operation: &Value) -> String {
    let mut own = String::new();
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let description = text(response, "description");
        let is_own = mentioned(description).any(|code| !COMMON.contains(&code));
        if status.starts_with(['4', '5']) && is_own {
            _ = write!(own, "<li><b>{status}</b> {}</li>", inline(description));
        }
    }
    let common: Vec<String> = codes(operation)
        .into_iter()
        .filter(|code| COMMON.contains(code))
        .map(|code| format!("<a href=\"#{0}\">{0}</a>", code.word()))
        .collect();
    let mut html = String::new();
    if !own.is_empty() || !common.is_empty() {
        html += "<h5>Errors</h5>";
    }
    if !own.is_empty() {
        _ = write!(html, "<ul class=\"problems\">{own}</ul>");
    }
    if !common.is_empty() {
        _ = write!(html, "<p class=\"common\">{}</p>", common.join(" "));
    }
    html
}

/// The codes of an operation, in the order of the page.
fn codes(operation: &Value) -> Vec<Code> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    let texts: Vec<&str> = responses
        .filter(|(status, _)| status.starts_with(['4', '5']))
        .map(|(_, response)| text(response, "description"))
        .collect();
    let is_mentioned = |code: &Code| texts.iter().any(|text| mentioned(text).any(|found| found == *code));
    Code::ALL.iter().copied().filter(is_mentioned).collect()
}

/// The codes that a text has in backquotes.
fn mentioned(text: &str) -> impl Iterator<Item = Code> {
    let words = text.split('`').skip(1).step_by(2).filter(|word| is_code(word));
    words.filter_map(|word| Code::ALL.iter().copied().find(|code| code.word() == word))
}

/// A request in each language, and its answer.
fn sample(exchange: &Exchange, python: Option<&str>) -> String {
    let label = exchange.label.map(|label| format!("<p>{}</p>", inline(label))).unwrap_or_default();
    let http = highlight(&snippets::http(exchange), Language::Json);
    let curl = highlight(&snippets::curl(exchange), Language::Shell);
    let python = match python {
        Some(code) => format!("<pre class=\"python\">{}</pre>", highlight(code, Language::Python)),
        None => String::new(),
    };
    let class = if python.is_empty() { "sample more" } else { "sample" };
    let status = exchange.status;
    let reason = status.parse::<u16>().ok().and_then(|status| StatusCode::from_u16(status).ok());
    let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or_default();
    let answer = match exchange.response.is_empty() {
        true => String::new(),
        false => format!("<pre>{}</pre>", highlight(&exchange.response, Language::Json)),
    };
    format!(
        "<div class=\"{class}\">{label}<div class=\"request\">\
         <pre class=\"http\">{http}</pre><pre class=\"curl\">{curl}</pre>{python}</div>\
         <div class=\"answer s{}\"><b>{status}</b> {reason}{answer}</div></div>",
        &status[..1.min(status.len())],
    )
}

/// The tests of a selection.
fn tests(schemas: &Schemas<'_>) -> String {
    let Some(tests) = schemas.0.get("Tests") else { return String::new() };
    fields::list(&schemas.fields(tests, ""), "selections")
}

/// The codes, for the table of contents.
fn code_list() -> String {
    let links = Code::ALL.iter().map(|code| format!("<li><a href=\"#{0}\">{0}</a></li>", code.word()));
    links.collect()
}

/// One section for each code. The `type` of a problem document links to it.
fn errors(answered_by: &BTreeMap<&str, Vec<&Call>>) -> String {
    let mut html = String::new();
    for code in Code::ALL {
        let (word, status) = (code.word(), code.status().as_u16());
        let calls = answered_by.get(word).map(Vec::as_slice).unwrap_or_default();
        let calls = match (calls.len(), COMMON.contains(code)) {
            (0, _) | (_, true) => String::new(),
            _ => {
                let link =
                    |call: &&Call| format!("<a href=\"#{}\">{}</a>", call.operation_id, escape(call.title));
                format!("<p class=\"by\">{}</p>", calls.iter().map(link).collect::<Vec<_>>().join(" · "))
            }
        };
        _ = writeln!(
            html,
            "<section class=\"error\" id=\"{word}\"><h4><a href=\"#{word}\"><code>{word}</code></a> \
             <small>{status}</small></h4><p><strong>{}.</strong> {}</p>{calls}</section>",
            escape(code.title()),
            inline(code.help()),
        );
    }
    html
}
