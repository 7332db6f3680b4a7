//! The webhook's address, as far as it holds a caller's token.
//!
//! Entry points: [`Address`], [`veil`]. Invariant: an address that may hold a token is veiled by
//! [`veil`] before it appears in a message. Must not print a token.

use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;

use super::{MUTATE, VALIDATE};
use kubemoor_runtime::callers::CallerToken;

/// The text in place of a token in printed manifests. The API server allows no capital letters in a
/// Service's path, so such a manifest cannot be applied by mistake.
const PLACEHOLDER: &str = "CALLER_TOKEN";

/// The proof in the webhook's address that the API server calls.
#[derive(Clone, Copy, Debug)]
pub enum Address<'a> {
    /// By a token.
    Token(&'a CallerToken),
    /// By a token that replaces the placeholder later.
    Placeholder,
    /// By nothing: the guard knows its certificate.
    Bare,
}

impl Address<'_> {
    /// The path of `base`.
    pub(super) fn path(self, base: &str) -> String {
        match self {
            Self::Token(token) => format!("{base}/{}", token.expose()),
            Self::Placeholder => format!("{base}/{PLACEHOLDER}"),
            Self::Bare => base.to_owned(),
        }
    }
}

/// Whether an address holds `token`.
pub(super) fn holds(address: &WebhookClientConfig, token: &CallerToken) -> bool {
    let path = address.service.as_ref().and_then(|service| service.path.as_deref());
    let texts = path.into_iter().chain(address.url.as_deref());
    texts.flat_map(|text| text.split('/')).any(|segment| segment == token.expose())
}

/// `text` without the parts in the place of tokens: a message of an API server or of another
/// webhook about a configuration may quote them.
pub(super) fn veil(text: &str) -> String {
    let mut veiled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((place, length)) = [VALIDATE, MUTATE]
        .into_iter()
        .filter_map(|base| Some((rest.find(&format!("{base}/"))?, base.len() + 1)))
        .min()
    {
        let (before, after) = rest.split_at(place + length);
        let token = after.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(after.len());
        veiled.push_str(before);
        if token > 0 {
            veiled.push('…');
        }
        rest = after.split_at(token).1;
    }
    veiled.push_str(rest);
    veiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_quotes_an_address_loses_the_token_alone() {
        let token = "a1".repeat(32);
        for (text, veiled) in [
            (String::new(), ""),
            ("no address".to_owned(), "no address"),
            (format!("url \"https://h/validate/{token}\" is bad"), "url \"https://h/validate/…\" is bad"),
            (format!("/mutate/{token}?timeout=3s /validate/{token}"), "/mutate/…?timeout=3s /validate/…"),
            ("/validate/".to_owned(), "/validate/"),
            ("é/validate/é".to_owned(), "é/validate/é"),
        ] {
            assert_eq!(veil(&text), veiled);
        }
    }
}
