//! Where a node is, and what is shown to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Url};
use serde::Deserialize;

/// A token's secret. It is never printed by accident.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the text, without the white space around it that a file or a shell leaves there.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a node answers.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// Its Unix socket; the peer's uid is the credential.
    Unix(PathBuf),
    /// Its HTTP door.
    Http {
        /// `http://HOST:PORT` or `https://…`, without credentials.
        url: String,
        /// What to authenticate with.
        token: Option<Secret>,
    },
}

/// Why an endpoint cannot be used. It never shows a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The URL is none, or not one of HTTP.
    #[error("{given:?} is no URL of a node; write it as http://HOST:PORT or https://HOST:PORT")]
    Url {
        /// What was given.
        given: String,
    },
    /// A URL may not carry a credential: it ends in logs and process lists.
    #[error("a node's URL carries no name or password; put the token into BERTH_TOKEN")]
    Credential,
    /// The token cannot be written into a header.
    #[error("the token holds characters that no token has")]
    Token,
    /// The machine's certificates or sockets could not be set up.
    #[error("the HTTP client could not be made: {why}")]
    Setup {
        /// What failed.
        why: String,
    },
}

impl Endpoint {
    /// The base of every URL, a name for messages, and the HTTP client.
    pub(super) fn open(self) -> Result<(Url, String, reqwest::Client), InvalidEndpoint> {
        // A coordinator is spoken to directly: a proxy of the environment would see the token, and breaks loopback.
        let builder = ClientBuilder::new()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("berth/", env!("CARGO_PKG_VERSION")));
        let (base, name, builder) = match self {
            Endpoint::Unix(path) => {
                let base = Url::parse("http://localhost").expect("the text is a URL");
                let name = path.display().to_string();
                (base, name, without_tls(builder)?.unix_socket(path))
            }
            Endpoint::Http { url, token } => {
                let base = node_url(&url)?;
                let builder = if base.scheme() == "https" {
                    // It fails only when a provider is there already, which will do.
                    let _ = rustls::crypto::ring::default_provider().install_default();
                    builder
                } else {
                    without_tls(builder)?
                };
                let name = base.as_str().trim_end_matches('/').to_owned();
                (base, name, builder.default_headers(authorization(token.as_ref())?))
            }
        };
        let client = builder.build().map_err(setup)?;
        Ok((base, name, client))
    }
}

fn node_url(given: &str) -> Result<Url, InvalidEndpoint> {
    let refused = || {
        // What stands before an `@` may be a password.
        let shown = given.rsplit('@').next().unwrap_or_default();
        InvalidEndpoint::Url { given: shown.chars().take(200).collect() }
    };
    let mut url = Url::parse(given.trim()).map_err(|_| refused())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(refused());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidEndpoint::Credential);
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn authorization(token: Option<&Secret>) -> Result<HeaderMap, InvalidEndpoint> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let mut value =
            HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| InvalidEndpoint::Token)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Plain HTTP needs no TLS, but reqwest sets it up for every client and panics when no provider is installed. An
/// empty one spares the process a provider, and the time to read the system's certificates.
fn without_tls(builder: ClientBuilder) -> Result<ClientBuilder, InvalidEndpoint> {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidEndpoint::Setup { why: error.to_string() })?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(builder.tls_backend_preconfigured(tls))
}

fn setup(error: reqwest::Error) -> InvalidEndpoint {
    InvalidEndpoint::Setup { why: super::error::root_cause(&error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(url: &str, token: Option<&str>) -> Result<String, InvalidEndpoint> {
        let endpoint = Endpoint::Http { url: url.to_owned(), token: token.map(Secret::new) };
        endpoint.open().map(|(_, name, _)| name)
    }

    #[test]
    fn a_url_that_names_no_node_says_how_one_looks() {
        for bad in ["", "lab:4700", "ftp://lab", "unix:///x", "http://"] {
            let error = open(bad, None).unwrap_err();
            assert!(error.to_string().contains("http://HOST:PORT"), "{bad}: {error}");
        }
        assert_eq!(open(" http://lab:4700/?x=1#y ", None).unwrap(), "http://lab:4700");
        // Whether it opens is up to the machine's certificates.
        let tls = open("https://lab", None);
        assert!(matches!(tls.as_deref(), Ok("https://lab") | Err(InvalidEndpoint::Setup { .. })), "{tls:?}");
    }

    #[test]
    fn a_secret_is_shown_by_no_error_and_no_debug_text() {
        for bad in ["http://me:hunter2@lab:4700", "http//me:hunter2@lab"] {
            let error = open(bad, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
        let error = open("http://lab", Some("hunter2\n!")).unwrap_err();
        assert_eq!(error, InvalidEndpoint::Token);
        let endpoint = Endpoint::Http { url: "http://lab".into(), token: Some(Secret::new("hunter2")) };
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let (_, _, client) = endpoint.open().unwrap();
        assert!(!format!("{client:?}").contains("hunter2"));
    }
}
