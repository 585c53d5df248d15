//! The API reference: `/openapi.json` for programs, `/docs` for people.

use super::{openapi, problem::Code};
use axum::{
    http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    response::{IntoResponse, Response},
};
use std::{fmt::Write, sync::LazyLock};

/// The page loads nothing from other sites, and no page may embed it in a frame.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static OPENAPI: LazyLock<String> = LazyLock::new(openapi::openapi_json);
static DOCS: LazyLock<String> = LazyLock::new(docs_page);

/// Read this reference as an OpenAPI document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "server",
    responses((status = 200, description = "The OpenAPI document.", body = Object)),
)]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI.as_str()).into_response()
}

/// Browse this reference.
#[utoipa::path(
    get, path = "/docs", tag = "server",
    responses((status = 200, description = "An HTML page.", body = String, content_type = "text/html")),
)]
pub(super) async fn docs() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, DOCS_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, DOCS.as_str()).into_response()
}

/// The page with one section per error code. The `type` of a problem document links to such a section.
fn docs_page() -> String {
    let mut errors = String::new();
    for code in Code::ALL {
        let (word, status) = (code.word(), code.status().as_u16());
        writeln!(
            errors,
            "<section class=\"error\" id=\"{word}\"><h3><code>{word}</code> <small>{status}</small></h3>\
             <p><b>{}.</b> {}</p></section>",
            code.title(),
            with_code_elements(code.help())
        )
        .expect("writing to a string succeeds");
    }
    include_str!("../../assets/docs.html").replace("<!-- errors -->", &errors)
}

/// Replaces pairs of backquotes by `code` elements.
fn with_code_elements(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}
