//! The API reference: `/openapi.json` for programs, `/docs` for people.

mod fields;
mod html;
mod page;
pub(super) mod samples;
mod snippets;

use axum::{
    http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use std::sync::LazyLock;

/// The page loads its own two files and nothing else, and no page may embed it in a frame.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The API reference as an OpenAPI document. `cargo xtask openapi` makes it from the code.
pub const OPENAPI_JSON: &str = include_str!("../../../../docs/openapi.json");
/// Rendered when it is first asked for.
static DOCS: LazyLock<String> = LazyLock::new(|| {
    let openapi = serde_json::from_str(OPENAPI_JSON).unwrap_or_default();
    page::page(&openapi)
});

/// Read this reference as an OpenAPI document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "server",
    responses((status = 200, description = "The OpenAPI document.", body = Object)),
)]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI_JSON).into_response()
}

/// Browse this reference.
#[utoipa::path(
    get, path = "/docs", tag = "server",
    responses((status = 200, description = "An HTML page.", body = String, content_type = "text/html")),
)]
pub(super) async fn docs() -> Response {
    file("text/html; charset=utf-8", &DOCS)
}

/// The style sheet of the page.
pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../../assets/docs/docs.css"))
}

/// The script of the page: search, theme, and buttons that copy.
pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../../assets/docs/docs.js"))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, media_type), (CONTENT_SECURITY_POLICY, DOCS_POLICY)];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::{DOCS, OPENAPI_JSON, samples::FAMILIES};
    use crate::http::problem::Code;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Every operation, except that the operations below `/v1/ns/{namespace}` repeat those outside.
    fn operations() -> BTreeSet<String> {
        let document: Value = serde_json::from_str(OPENAPI_JSON).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
        operations
            .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
            .filter(|id| !id.ends_with("_in_namespace"))
            .collect()
    }

    #[test]
    fn every_operation_is_on_the_page_once_with_its_samples() {
        let calls = FAMILIES.iter().flat_map(|family| &family.groups).flat_map(|group| &group.calls);
        let mut shown = BTreeSet::new();
        for call in calls {
            let id = call.operation_id;
            assert!(shown.insert(id.to_owned()), "{id} is there twice");
            assert!(DOCS.contains(&format!("<section class=\"call\" id=\"{id}\">")), "{id}");
            let first = call.exchanges.first().unwrap_or_else(|| panic!("{id} has no sample"));
            assert!(first.status.starts_with(['1', '2']), "{id} begins with a refusal");
            for exchange in &call.exchanges {
                let has_body = !["101", "202", "204"].contains(&exchange.status);
                assert_eq!(has_body, !exchange.response.is_empty(), "{id}: the body of {}", exchange.status);
            }
        }
        assert_eq!(shown, operations());
    }

    #[test]
    fn addresses_are_unique_and_links_lead_somewhere() {
        let part = |text: &'static str, begin: &'static str| {
            text.split(begin).skip(1).map(|rest| rest.split('"').next().unwrap())
        };
        let mut ids = BTreeSet::new();
        for id in part(&DOCS, " id=\"") {
            assert!(ids.insert(id), "{id} is there twice");
        }
        for target in part(&DOCS, "href=\"#") {
            assert!(ids.contains(target), "#{target} leads nowhere");
        }
        // The page explains every code, and a call leads to it, except where no call is found.
        for code in Code::ALL {
            let word = code.word();
            assert!(ids.contains(word), "{word}");
            let links = DOCS.matches(&format!("href=\"#{word}\"")).count();
            let is_outside = [Code::NotFound, Code::MethodNotAllowed].contains(code);
            assert!(links > 2 || is_outside, "no call says that it can answer {word}");
        }
        for field in [
            "check.body.hits",
            "check.answer.limits.rule",
            "list_rules.query.limit",
            "hold.header.Idempotency-Key",
        ] {
            assert!(ids.contains(field), "{field}");
        }
        assert!(!DOCS.contains("<!-- "), "a part is missing");
    }

    /// The policy would block both.
    #[test]
    fn no_script_and_no_style_is_in_the_page() {
        let page = DOCS.to_lowercase();
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script src=\"/docs/docs.js\"></script>").count()
        );
    }
}
