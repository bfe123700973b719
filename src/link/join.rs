//! Joining, both ends: the machine asks, the gateway hears it out (the protocol is in [`wire::join`](crate::wire::join)).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::endpoint::{STREAMS_MAX, transport};
use super::stream::{FrameWriter, read, reader, short_reader, write, writer};
use super::{LinkError, Udp};
use crate::trust::{Invitation, JoinerKey, PublicKey, TrustError, joiner_tls};
use crate::wire::join::{JOIN_ALPN, JOIN_ASK_BYTES_MAX, JOIN_PROOF_LABEL, JoinAnswer, JoinAsk};

/// The whole conversation takes at most this long.
const JOIN_BOUND: Duration = Duration::from_secs(15);
/// How long the gateway waits for a machine to take its answer.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
/// The longest text of a refusal that is shown.
const WHY_CHARS_MAX: usize = 500;

/// Why a machine has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The gateway's name does not resolve.
    #[error("cannot resolve {address}; check the name, and that this machine can look it up")]
    Resolve {
        /// What was looked up.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Whoever answers there is not the gateway of the invitation.
    #[error("{address} is not the gateway of this invitation: {why}; check where the invitation is from")]
    NotTheGateway {
        /// Who was asked.
        address: String,
        /// Why not.
        why: String,
    },
    /// The gateway has said no.
    #[error("{why}")]
    Refused {
        /// One stable word.
        reason: String,
        /// What to do.
        why: String,
    },
    /// The gateway was not reached, or what became of it is not known.
    #[error(
        "the gateway at {address} has not answered; see that it runs and that UDP gets there, and join again with the same invitation"
    )]
    Link {
        /// Who was asked.
        address: String,
        /// Why.
        #[source]
        source: LinkError,
    },
    /// The key cannot sign.
    #[error(transparent)]
    Key(#[from] TrustError),
}

/// The certificate that a machine has got, and that of the lab's CA, PEM.
#[derive(Debug, Clone)]
pub struct Joined {
    /// The machine's.
    pub certificate: String,
    /// The lab's.
    pub authority: String,
}

/// Asks the gateway of an invitation for a certificate of `key`. Asking again with the same key is safe.
///
/// # Errors
/// Why there is none.
pub async fn join(invitation: &Invitation, key: &JoinerKey, udp: &Udp) -> Result<Joined, JoinError> {
    let asked = timeout(JOIN_BOUND, ask(invitation, key, udp)).await;
    let failed = |source| JoinError::Link { address: invitation.address.clone(), source };
    match asked.unwrap_or_else(|_| Err(failed(LinkError::Timeout)))? {
        JoinAnswer::Joined { certificate, authority } => Ok(Joined { certificate, authority }),
        JoinAnswer::Refused { reason, why } => {
            let cut = |text: String| text.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
            Err(JoinError::Refused { reason: cut(reason), why: cut(why) })
        }
    }
}

async fn ask(invitation: &Invitation, key: &JoinerKey, udp: &Udp) -> Result<JoinAnswer, JoinError> {
    let address = &invitation.address;
    let failed = |source: LinkError| JoinError::Link { address: address.clone(), source };
    let resolve = |source| JoinError::Resolve { address: address.clone(), source };
    let mut found = tokio::net::lookup_host(address).await.map_err(resolve)?;
    // As a link is dialled later.
    let remote = found.find(|found| found.is_ipv6() == address.starts_with('['));
    let remote = remote.ok_or_else(|| resolve(std::io::Error::other("no address of the right family")))?;
    let any: SocketAddr =
        if remote.is_ipv6() { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
    let tls = joiner_tls(invitation, JOIN_ALPN).map_err(|error| failed(error.into()))?;
    let tls = QuicClientConfig::try_from(tls).map_err(|error| failed(LinkError::Protocol(error.to_string())))?;
    let mut client = quinn::ClientConfig::new(Arc::new(tls));
    client.transport_config(transport(STREAMS_MAX));
    let endpoint = udp
        .endpoint(any, quinn::EndpointConfig::default(), None)
        .map_err(|source| failed(LinkError::Bind { address: any, source }))?;
    // The name in the certificate is checked by the verifier; this one is sent to nobody.
    let connecting = endpoint.connect_with(client, remote, "gateway.invalid");
    let connecting = connecting.map_err(|error| failed(LinkError::Protocol(error.to_string())))?;
    let connection = connecting.await.map_err(|error| match LinkError::from(error) {
        error if error.refused_by_us() => JoinError::NotTheGateway { address: address.clone(), why: error.why() },
        error => failed(error),
    })?;
    let answer = converse(&connection, invitation, key).await;
    let answer = answer.map_err(|error| match error {
        Asked::Key(error) => JoinError::Key(error),
        // A stream breaks because its connection has ended, and that says why.
        Asked::Link(error) => failed(connection.close_reason().map_or(error, LinkError::from)),
    });
    connection.close(0u8.into(), b"thank you");
    // What was sent last is the farewell; without it the gateway waits out its bound.
    let _ = timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
    answer
}

/// Why a conversation did not end with an answer.
enum Asked {
    Link(LinkError),
    Key(TrustError),
}

impl<E: Into<LinkError>> From<E> for Asked {
    fn from(error: E) -> Self {
        Asked::Link(error.into())
    }
}

async fn converse(
    connection: &quinn::Connection,
    invitation: &Invitation,
    key: &JoinerKey,
) -> Result<JoinAnswer, Asked> {
    let ask = JoinAsk {
        worker: invitation.worker.clone(),
        secret: invitation.secret.expose().to_owned(),
        public_key: key.public().to_hex(),
        proof: key.prove(&bound(connection)?).map_err(Asked::Key)?,
    };
    let (send, receive) = connection.open_bi().await?;
    write(&mut writer(send), &ask).await?;
    let answer = read(&mut reader(receive)).await?;
    Ok(answer.ok_or_else(|| LinkError::Protocol("no answer".to_owned()))?)
}

/// 32 bytes that only the two ends of this connection know.
fn bound(connection: &quinn::Connection) -> Result<[u8; 32], LinkError> {
    let mut bound = [0; 32];
    let exported = connection.export_keying_material(&mut bound, JOIN_PROOF_LABEL, b"");
    exported.map_err(|_| LinkError::Protocol("the connection has no keys to export".to_owned()))?;
    Ok(bound)
}

/// A machine that wants to join and waits for its answer.
#[derive(Debug)]
pub struct Joining {
    /// What it asks; its proof holds.
    pub ask: JoinAsk,
    /// The key that it has.
    pub key: PublicKey,
    /// Where it comes from.
    pub address: SocketAddr,
    connection: quinn::Connection,
    answer: FrameWriter,
    _place: OwnedSemaphorePermit,
}

/// Hears a machine out that wants to join, if there is a place for it.
pub(super) async fn hear_joiner(
    connection: quinn::Connection,
    address: SocketAddr,
    places: Arc<Semaphore>,
) -> Result<Joining, LinkError> {
    let Ok(_place) = places.try_acquire_owned() else {
        connection.close(3u8.into(), b"too many machines join at once; ask again in a moment");
        return Err(LinkError::Protocol("too many machines join at once".to_owned()));
    };
    let (send, receive) = connection.accept_bi().await?;
    let asked = read(&mut short_reader(receive, JOIN_ASK_BYTES_MAX)).await?;
    let ask: JoinAsk = asked.ok_or_else(|| LinkError::Protocol("no question".to_owned()))?;
    let key = PublicKey::proven(&ask.public_key, &ask.proof, &bound(&connection)?);
    let key = key.ok_or_else(|| {
        connection.close(4u8.into(), b"the proof of the key does not hold");
        LinkError::Protocol("a machine has not proved that it has its key".to_owned())
    })?;
    Ok(Joining { ask, key, address, connection, answer: writer(send), _place })
}

impl Joining {
    /// Answers. The machine closes once it has read it; one that does not is cut off.
    pub async fn answer(mut self, answer: JoinAnswer) -> Result<(), LinkError> {
        write(&mut self.answer, &answer).await?;
        if timeout(ANSWER_BOUND, self.connection.closed()).await.is_err() {
            self.connection.close(5u8.into(), b"the answer was not taken");
        }
        Ok(())
    }
}
