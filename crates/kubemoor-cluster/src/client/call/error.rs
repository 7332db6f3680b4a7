//! The reasons why a request to the API server has no usable answer.
//!
//! Entry points: [`CallError`], [`causes_of`]. Invariant: no error holds a body, and none about a Secret quotes the API
//! server's words.

use std::time::Duration;

use kube::core::Status;
use kube::core::response::reason;

use kubemoor_declare::model::Cause;

/// Replaces a message that could quote a Secret's values.
const WITHHELD: &str = "(withheld, since it may quote the Secret)";

/// The cause of a refusal in a namespace that is being deleted.
const TERMINATING: &str = "NamespaceTerminating";

/// Why the API server gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke.
    #[error("the API server did not answer: {reason}")]
    Unreachable {
        /// The transport's reason.
        reason: String,
    },
    /// The time for the request ran out.
    #[error("the API server did not answer within {} ms", .within.as_millis())]
    Late {
        /// The time that the request had.
        within: Duration,
    },
    /// The API server refused.
    #[error("the API server refused ({code} {reason}): {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The API's reason word, such as `NotFound`; may be empty.
        reason: String,
        /// The API server's message. Withheld where it could quote a Secret.
        message: String,
        /// The fields at fault, as `field: message`, where the API names any.
        causes: Vec<Cause>,
        /// The pause that the server asks for before the next request.
        retry_after: Option<Duration>,
        /// Whether the API server names an object that does not exist. A proxy before it that answers 404, and an API
        /// server that is starting, name none.
        names_absent: bool,
    },
    /// The API server knows no such path: it does not serve the kind, or not in
    /// this version.
    #[error("the API server does not serve this")]
    Unserved,
    /// The answer is larger than the cap.
    #[error("the API server's answer exceeds {cap} bytes")]
    TooLarge {
        /// The cap in bytes.
        cap: usize,
    },
    /// The answer is not what the API promises. Holds a place, no content.
    #[error("the API server's answer cannot be read at line {line}, column {column}")]
    Unreadable {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The request could not be formed.
    #[error("the request cannot be formed: {reason}")]
    Unformed {
        /// What is wrong with it.
        reason: String,
    },
}

impl CallError {
    /// Whether the object, or the kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. } | Self::Unserved)
    }

    /// Whether the API server vouches that the object of the request does not exist. For a create it is the namespace.
    pub fn proves_absence(&self) -> bool {
        matches!(self, Self::Refused { names_absent: true, .. })
    }

    /// Whether a write of an object that was there is refused because another writer was faster: the object has
    /// changed or is gone, or its definition is.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 409, .. } | Self::Unserved)
    }

    /// Whether the namespace of the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        let Self::Refused { causes, .. } = self else { return false };
        causes.iter().any(|cause| cause.reason == TERMINATING)
    }

    /// Whether the rights for the request are missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }

    /// Whether the API server does not accept the credentials, or no longer does.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { code: 401, .. })
    }

    /// Whether the `resourceVersion` or `continue` token of the request has expired.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    /// Whether the API server did not answer: trying the same again soon may help.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code >= 500 || *code == 429,
            Self::Unserved | Self::TooLarge { .. } | Self::Unreadable { .. } | Self::Unformed { .. } => false,
            Self::Unreachable { .. } | Self::Late { .. } => true,
        }
    }

    /// The pause that the server asks for before the next request.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Refused { retry_after, .. } = self else { return None };
        *retry_after
    }

    /// The same refusal, by a server that asks for this pause in a header.
    pub(super) fn with_pause(mut self, pause: Option<Duration>) -> Self {
        if let Self::Refused { retry_after, .. } = &mut self {
            *retry_after = pause.or(*retry_after);
        }
        self
    }

    /// The same refusal without any text that could quote a field's value.
    pub(crate) fn without_values(self) -> Self {
        match self {
            Self::Refused { code, reason, causes, retry_after, names_absent, .. } => Self::Refused {
                code,
                reason,
                retry_after,
                names_absent,
                message: WITHHELD.to_owned(),
                causes: causes
                    .into_iter()
                    .map(|cause| Cause { message: WITHHELD.to_owned(), ..cause })
                    .collect(),
            },
            other => other,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let details = status.details.map(|details| {
            let is_named = !details.kind.is_empty() && !details.name.is_empty();
            (is_named, details.causes, details.retry_after_seconds)
        });
        let (is_named, causes, seconds) = details.unwrap_or_default();
        // A status inside a watch may lack the code; the word says the same.
        let code = match (status.code, status.reason.as_str()) {
            (0, reason::EXPIRED | reason::GONE) => 410,
            (0, reason::NOT_FOUND) => 404,
            (0, reason::FORBIDDEN) => 403,
            (0, _) => 500,
            (code, _) => code,
        };
        Self::Refused {
            code,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            names_absent: code == 404 && status.reason == reason::NOT_FOUND && is_named,
            reason: status.reason,
            message: status.message,
            causes: causes
                .into_iter()
                .map(|cause| Cause { reason: cause.reason, field: cause.field, message: cause.message })
                .collect(),
        }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => Self::Unreadable { line: error.line(), column: error.column() },
            kube::Error::BuildRequest(error) => error.into(),
            kube::Error::HttpError(error) => Self::Unformed { reason: error.to_string() },
            other => Self::Unreachable { reason: causes_of(&other) },
        }
    }
}

impl From<kube::core::request::Error> for CallError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::Unformed { reason: error.to_string() }
    }
}

/// The error and what caused it, in one sentence: transports say the useful
/// part (refused, name not known, bad certificate) only in the innermost.
pub(crate) fn causes_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
