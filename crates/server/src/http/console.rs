//! The console: a page for operators, which calls the API with the token of its user. Its sources are in `console/`;
//! `cargo xtask console` bundles them into the files that are embedded here.

use axum::{
    http::{
        HeaderMap, StatusCode, Uri,
        header::{
            ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
            IF_NONE_MATCH, REFERRER_POLICY, VARY,
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

/// A file of the console.
struct File {
    name: &'static str,
    media_type: &'static str,
    plain: Body,
    /// Only large files have one.
    gzipped: Option<Body>,
}

/// The bytes of a file in one encoding.
struct Body {
    bytes: &'static [u8],
    etag: String,
}

macro_rules! embedded {
    ($name:expr) => {
        Body::new(include_bytes!(concat!("../../assets/console/", $name)))
    };
}

static PAGE: LazyLock<File> = LazyLock::new(|| File {
    name: "index.html",
    media_type: "text/html; charset=utf-8",
    plain: embedded!("index.html"),
    gzipped: None,
});
static FILES: LazyLock<[File; 3]> = LazyLock::new(|| {
    [
        File {
            name: "app.js",
            media_type: "text/javascript; charset=utf-8",
            plain: embedded!("app.js"),
            gzipped: Some(embedded!("app.js.gz")),
        },
        File {
            name: "app.css",
            media_type: "text/css; charset=utf-8",
            plain: embedded!("app.css"),
            gzipped: Some(embedded!("app.css.gz")),
        },
        File { name: "icon.svg", media_type: "image/svg+xml", plain: embedded!("icon.svg"), gzipped: None },
    ]
});

impl Body {
    fn new(bytes: &'static [u8]) -> Body {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Body { bytes, etag: format!("\"{:016x}\"", hasher.finish()) }
    }
}

impl File {
    /// The file, or 304 if the browser has it. Browsers ask each time, so that the page and its script are always of the same
    /// version, also while the nodes of a cluster are updated one by one.
    fn answer(&'static self, request: &HeaderMap) -> Response {
        let gzipped = self.gzipped.as_ref().filter(|_| accepts_gzip(request));
        let body = gzipped.unwrap_or(&self.plain);
        let headers = [
            (ETAG, body.etag.as_str()),
            (CACHE_CONTROL, "no-cache"),
            (VARY, "accept-encoding"),
            (CONTENT_SECURITY_POLICY, POLICY),
            // An address of the console contains names, which are nobody else's business.
            (REFERRER_POLICY, "no-referrer"),
        ];
        let is_known =
            request.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == body.etag.as_bytes());
        if is_known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let encoding = gzipped.map(|_| [(CONTENT_ENCODING, "gzip")]);
        (headers, [(CONTENT_TYPE, self.media_type)], encoding, body.bytes).into_response()
    }
}

/// Whether the browser names gzip among the encodings that it accepts, with a weight above 0.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|entry| {
        let mut words = entry.split(';').map(str::trim);
        let is_gzip = words.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = words.find_map(|word| word.strip_prefix("q=")).map(str::parse::<f32>);
        is_gzip && weight.is_none_or(|weight| weight.is_ok_and(|weight| weight > 0.0))
    })
}

/// The page. It shows the screen that its address names.
pub(super) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers)
}

/// A file of the page, or the page for everything else below `/console/`.
pub(super) async fn below(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix("/console/").unwrap_or_default();
    FILES.iter().find(|file| file.name == name).unwrap_or(&PAGE).answer(&headers)
}

/// The root leads to the console, for people who open the address in a browser.
pub(super) async fn root() -> Redirect {
    Redirect::temporary("/console")
}
