//! Statuses and classes of errors of Liminator's Thrift interface.

use super::super::problem::Failure;
use crate::liminator::messages::Exception;
use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

pub(crate) const MEDIA_TYPE: &str = "application/x-thrift";
const ERROR_CLASS: HeaderName = HeaderName::from_static("woody.error-class");
const ERROR_REASON: HeaderName = HeaderName::from_static("woody.error-reason");

/// What Liminator's clients are told of an answer that is no success.
pub(crate) enum Unsuccessful {
    /// An exception that the function declares.
    Declared(Vec<u8>, Exception),
    /// The request itself is wrong. The status is that of the failure.
    Invalid(Failure),
    /// The function has no exception for this.
    Unexpected(Failure),
    /// Nothing was done. A later attempt may succeed.
    Unavailable(Failure),
    /// It may have been done.
    Unknown(Failure),
}

/// A failure before the function was executed.
impl From<Failure> for Unsuccessful {
    fn from(failure: Failure) -> Unsuccessful {
        match failure.code().status().is_client_error() {
            true => Unsuccessful::Invalid(failure),
            false => undeclared(failure),
        }
    }
}

impl IntoResponse for Unsuccessful {
    fn into_response(self) -> Response {
        let (mut response, class, reason) = match self {
            Unsuccessful::Declared(bytes, exception) => (thrift(bytes), "Business Error", exception.name),
            Unsuccessful::Invalid(failure) => {
                let reason = failure.code().word();
                (failure.into_response(), "Result Unexpected", reason)
            }
            Unsuccessful::Unexpected(failure) => {
                let reason = failure.code().word();
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                (failure.with_status(status).into_response(), "Result Unexpected", reason)
            }
            Unsuccessful::Unavailable(failure) => {
                let reason = failure.code().word();
                (failure.into_response(), "Resource Unavailable", reason)
            }
            Unsuccessful::Unknown(failure) => {
                let reason = failure.code().word();
                let status = StatusCode::GATEWAY_TIMEOUT;
                (failure.with_status(status).into_response(), "Result Unknown", reason)
            }
        };
        let headers = response.headers_mut();
        headers.insert(ERROR_CLASS, HeaderValue::from_static(class));
        headers.insert(ERROR_REASON, HeaderValue::from_static(reason));
        response
    }
}

/// An answer in Thrift.
pub(crate) fn thrift(bytes: Vec<u8>) -> Response {
    (StatusCode::OK, [(CONTENT_TYPE, MEDIA_TYPE)], bytes).into_response()
}

/// A failure for which the function declares no exception.
pub(crate) fn undeclared(failure: Failure) -> Unsuccessful {
    match failure.code().status() {
        StatusCode::SERVICE_UNAVAILABLE => Unsuccessful::Unavailable(failure),
        _ => Unsuccessful::Unexpected(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn failures_before_the_function_have_their_class() {
        #[track_caller]
        fn check(code: Code, status: u16, class: &str) {
            let response = Unsuccessful::from(Failure::new(code, "why")).into_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[ERROR_CLASS], class);
        }
        check(Code::UnsupportedMediaType, 415, "Result Unexpected");
        check(Code::Overloaded, 503, "Resource Unavailable");
        check(Code::QuotaExceeded, 500, "Result Unexpected");
    }
}
