//! One node's HTTP door, spoken to by many clients at once.

use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

/// A door and its admin's token. Copies share their connections.
#[derive(Debug, Clone)]
pub struct Door {
    /// The node behind it.
    pub node: Arc<str>,
    base: Arc<str>,
    token: Arc<str>,
    http: reqwest::Client,
}

/// There is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Nobody was there to take the call.
    Unreached,
    /// It may have been taken.
    Unanswered,
}

impl Door {
    pub fn new(node: &str, address: &str, token: &str) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // Another test of this process may have chosen it already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2)).build();
        let http = http.expect("a client for plain HTTP needs nothing");
        let base = format!("http://{address}");
        Self { node: node.into(), base: base.into(), token: token.into(), http }
    }

    /// Asks for one of the admin's sub-names, and waits for the answer until `bound` is over.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        requester: Option<&str>,
        body: Option<&Value>,
        bound: Duration,
    ) -> Result<Value, Lost> {
        let mut call = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(requester) = requester {
            call = call.header("Berth-Requester", requester);
        }
        if let Some(body) = body {
            call = call.json(body);
        }
        let lost = |error: reqwest::Error| if error.is_connect() { Lost::Unreached } else { Lost::Unanswered };
        let answer = call.timeout(bound).send().await.map_err(lost)?;
        // A node that was killed in the middle of its answer has not answered.
        answer.json().await.map_err(|_| Lost::Unanswered)
    }

    /// Reads, until there is an answer.
    pub async fn get(&self, path: &str) -> Value {
        for _ in 0..100 {
            if let Ok(body) = self.call(Method::GET, path, None, None, Duration::from_secs(10)).await
                && body["error"].is_null()
            {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{} does not answer {path}", self.node);
    }
}
