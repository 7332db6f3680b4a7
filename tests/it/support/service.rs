//! Services that take notifications, each as it is documented: what it refuses, and how it says so.
//!
//! Entry point: [`Service::open`]. Invariant: what a service would refuse is kept apart, and the address of
//! each holds a secret, [`SECRET`], as those of chats do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::wait::{SOON, eventually};

/// What must be printed nowhere.
pub(crate) const SECRET: &str = "T0hunter2B0hunter2";

/// PagerDuty's key, which must be printed nowhere either.
pub(crate) const ROUTING_KEY: &str = "hunter2hunter2hunter2hunter2hunt";

/// Whose interface a service has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServiceKind {
    Slack,
    Teams,
    PagerDuty,
    /// Anything that takes JSON.
    Json,
}

/// How a service answers a request whatever it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServiceFault {
    /// Too many requests; the next is welcome after so many seconds.
    Busy(u32),
    /// This code.
    Code(u16),
    /// It never answers.
    Silent,
}

/// A service that keeps what it takes.
#[derive(Clone)]
pub(crate) struct Service {
    kind: ServiceKind,
    pub(crate) url: String,
    kept: Arc<Mutex<ServiceState>>,
}

#[derive(Default)]
struct ServiceState {
    taken: Vec<Value>,
    refused: Vec<String>,
    /// How many requests came, and what is to be answered next.
    requests: usize,
    faults: VecDeque<ServiceFault>,
}

impl Service {
    /// Opens it; it answers the first requests with these faults.
    pub(crate) async fn open(kind: ServiceKind, faults: &[ServiceFault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/services/{SECRET}", listener.local_addr().unwrap());
        let kept = ServiceState { faults: faults.iter().copied().collect(), ..ServiceState::default() };
        let service = Self { kind, url, kept: Arc::new(Mutex::new(kept)) };
        let path = format!("/services/{SECRET}");
        let router = Router::new().route(&path, axum::routing::post(receive)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        service
    }

    /// What it took.
    pub(crate) fn taken(&self) -> Vec<Value> {
        self.kept.lock().unwrap().taken.clone()
    }

    /// How many requests came, also those that it answered with a fault.
    pub(crate) fn requests(&self) -> usize {
        self.kept.lock().unwrap().requests
    }

    /// Asserts that it refused nothing as malformed.
    pub(crate) fn assert_pleased(&self) {
        let refused = self.kept.lock().unwrap().refused.clone();
        assert!(refused.is_empty(), "{:?} refuses {refused:#?}", self.kind);
    }

    /// Waits for something that it took.
    pub(crate) async fn wait_for(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{:?} gets {what}", self.kind), SOON, || async {
            self.assert_pleased();
            let taken = self.taken();
            taken.iter().find(|it| is_it(it)).cloned().ok_or_else(|| format!("{taken:?}"))
        })
        .await
    }
}

async fn receive(State(service): State<Service>, headers: HeaderMap, body: Bytes) -> Response {
    let fault = {
        let mut kept = service.kept.lock().unwrap();
        kept.requests += 1;
        kept.faults.pop_front()
    };
    match fault {
        Some(ServiceFault::Busy(seconds)) => {
            let headers = [("retry-after", seconds.to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, headers, "rate_limited").into_response();
        }
        Some(ServiceFault::Code(code)) => {
            return (StatusCode::from_u16(code).unwrap(), format!("no /services/{SECRET}")).into_response();
        }
        Some(ServiceFault::Silent) => return std::future::pending().await,
        None => {}
    }
    let type_ = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parsed = serde_json::from_slice::<Value>(&body).map_err(|error| error.to_string());
    let judged = parsed.and_then(|value| {
        if !type_.starts_with("application/json") && service.kind != ServiceKind::Json {
            return Err(format!("content type {type_}"));
        }
        service.kind.check(&value, body.len()).map(|()| value)
    });
    let mut kept = service.kept.lock().unwrap();
    match judged {
        Ok(value) => {
            let answer = service.kind.thanks(&value);
            kept.taken.push(value);
            answer
        }
        Err(why) => {
            kept.refused.push(format!("{why}: {}", String::from_utf8_lossy(&body)));
            service.kind.refusal(&why)
        }
    }
}

impl ServiceKind {
    /// What the service says of a request that it takes.
    fn thanks(self, value: &Value) -> Response {
        let dedup_key = &value["dedup_key"];
        let event = json!({"status": "success", "message": "Event processed", "dedup_key": dedup_key});
        match self {
            Self::Slack | Self::Json => "ok".into_response(),
            Self::Teams => StatusCode::ACCEPTED.into_response(),
            Self::PagerDuty => (StatusCode::ACCEPTED, event.to_string()).into_response(),
        }
    }

    fn refusal(self, why: &str) -> Response {
        let event = json!({"status": "invalid event", "message": "Event object is invalid", "errors": [why]});
        let text = match self {
            Self::PagerDuty => event.to_string(),
            _ => "invalid_payload".to_owned(),
        };
        (StatusCode::BAD_REQUEST, text).into_response()
    }

    /// What the service's documentation asks for.
    fn check(self, value: &Value, size: usize) -> Result<(), String> {
        let within = |path: &str, most: usize| match value.pointer(path).and_then(Value::as_str) {
            Some(text) if !text.is_empty() && text.chars().count() <= most => Ok(()),
            other => Err(format!("{path} is {other:?}")),
        };
        let one_of = |path: &str, words: &[&str]| match value.pointer(path).and_then(Value::as_str) {
            Some(text) if words.contains(&text) => Ok(()),
            other => Err(format!("{path} is {other:?}")),
        };
        match self {
            Self::Json => Ok(()),
            Self::Slack => within("/text", 4000),
            Self::Teams => {
                one_of("/type", &["message"])?;
                one_of("/attachments/0/contentType", &["application/vnd.microsoft.card.adaptive"])?;
                one_of("/attachments/0/content/type", &["AdaptiveCard"])?;
                let blocks = value.pointer("/attachments/0/content/body").and_then(Value::as_array);
                let has_blocks = blocks.is_some_and(|blocks| !blocks.is_empty());
                if has_blocks && size <= 28 << 10 {
                    Ok(())
                } else {
                    Err("no blocks, or too large".to_owned())
                }
            }
            Self::PagerDuty => {
                one_of("/routing_key", &[ROUTING_KEY])?;
                one_of("/event_action", &["trigger", "resolve"])?;
                within("/dedup_key", 255)?;
                if value["event_action"] == "resolve" {
                    return Ok(());
                }
                within("/payload/summary", 1024)?;
                within("/payload/source", 255)?;
                one_of("/payload/severity", &["critical", "error", "warning", "info"])
            }
        }
    }
}
