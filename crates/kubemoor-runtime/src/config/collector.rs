//! The address that receives traces.
//!
//! Entry point: [`CollectorUrl`]. Invariant: an address for OTLP over HTTP without credentials, because every
//! user of the machine can read the command line.

use std::fmt;
use std::str::FromStr;

/// The address of an OpenTelemetry collector that takes OTLP over HTTP, such as `http://collector:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(String);

impl CollectorUrl {
    /// The collector's address for traces.
    pub fn traces(&self) -> String {
        format!("{}/v1/traces", self.0)
    }
}

impl FromStr for CollectorUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MEANT: &str =
            "a collector is http://HOST:PORT or https://HOST:PORT, such as http://collector:4318";
        let url: http::Uri = text.parse().map_err(|_| MEANT)?;
        let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(MEANT);
        };
        if authority.as_str().contains('@') {
            return Err("a collector's credentials belong into the variable OTEL_EXPORTER_OTLP_HEADERS");
        }
        if url.query().is_some() {
            return Err(MEANT);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_is_a_url_without_credentials() {
        for (text, traces) in [
            ("http://collector:4318", Some("http://collector:4318/v1/traces")),
            ("https://otel.example/in/", Some("https://otel.example/in/v1/traces")),
            ("collector:4317", None),
            ("grpc://collector:4317", None),
            ("https://user:hunter2@collector", None),
            ("https://collector?key=hunter2", None),
        ] {
            let read = text.parse::<CollectorUrl>();
            assert_eq!(read.as_ref().ok().map(CollectorUrl::traces).as_deref(), traces, "{text}");
            assert!(!format!("{:?}", read.err()).contains("hunter2"), "{text}");
        }
    }
}
