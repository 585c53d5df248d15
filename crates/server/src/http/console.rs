//! The console: a page for operators, which calls the API with the token of its user. Its sources are in `console/`;
//! `cargo xtask console` bundles them into the files that are embedded here.

use axum::{
    extract::Path,
    http::{
        HeaderMap, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Redirect, Response},
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

/// The page loads nothing from other sites, runs no inline script, and no page may embed it in a frame. The script cannot write
/// HTML either (trusted types): texts from clients reach the page as text only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// An embedded file.
struct File {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
    etag: String,
}

macro_rules! file {
    ($name:literal, $media_type:literal) => {
        File::new($name, $media_type, include_bytes!(concat!("../../assets/console/", $name)))
    };
}

static PAGE: LazyLock<File> = LazyLock::new(|| file!("index.html", "text/html; charset=utf-8"));
static FILES: LazyLock<[File; 3]> = LazyLock::new(|| {
    [
        file!("app.js", "text/javascript; charset=utf-8"),
        file!("app.css", "text/css; charset=utf-8"),
        file!("icon.svg", "image/svg+xml"),
    ]
});

impl File {
    fn new(name: &'static str, media_type: &'static str, bytes: &'static [u8]) -> File {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        File { name, media_type, bytes, etag: format!("\"{:016x}\"", hasher.finish()) }
    }

    /// The file, or 304 if the browser has it. Browsers ask each time, so that the page and its script are always of the same
    /// version, also while the nodes of a cluster are updated one by one.
    fn answer(&'static self, request: &HeaderMap) -> Response {
        let headers = [
            (ETAG, self.etag.as_str()),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // An address of the console contains names, which are nobody else's business.
            (REFERRER_POLICY, "no-referrer"),
        ];
        let is_known =
            request.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == self.etag.as_bytes());
        match is_known {
            true => (StatusCode::NOT_MODIFIED, headers).into_response(),
            false => (headers, [(CONTENT_TYPE, self.media_type)], self.bytes).into_response(),
        }
    }
}

/// The page. It shows the screen that its address names.
pub(super) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers)
}

/// A file of the page, or the page for everything else below `/console/`.
pub(super) async fn below(Path(rest): Path<String>, headers: HeaderMap) -> Response {
    FILES.iter().find(|file| file.name == rest).unwrap_or(&PAGE).answer(&headers)
}

/// The root leads to the console, for people who open the address in a browser.
pub(super) async fn root() -> Redirect {
    Redirect::temporary("/console")
}
