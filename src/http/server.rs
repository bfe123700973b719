//! Listeners and connections: bind, serve, stop.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bind::{self, SocketFile};
use super::door::Peer;
use super::router::{Front, router};
use super::{App, BindError};
use crate::limits;

/// How long the head of a request may take to arrive, and how long a connection may rest between two.
const HEAD_BOUND: Duration = Duration::from_secs(30);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The pause after an accept that failed for want of memory or descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The HTTP door of a node. Dropping it ends every connection at once; [`Self::shutdown`] lets requests finish.
#[derive(Debug)]
pub struct Server {
    api: Option<SocketAddr>,
    stopping: CancellationToken,
    /// One task for each listener; it owns the connections.
    listeners: JoinSet<()>,
}

impl Server {
    /// Returns when every listener is bound: the Unix socket at `socket`, whose directory must be 0700, and TCP at
    /// `api` if given.
    ///
    /// # Errors
    /// When an address or the path is not to be had; then nothing is left open.
    pub async fn bind(app: App, api: Option<SocketAddr>, socket: &Path) -> Result<Server, BindError> {
        let tcp = match api {
            Some(address) => Some(bind::tcp(address).await?),
            None => None,
        };
        let api = tcp.as_ref().and_then(|listener| listener.local_addr().ok());
        let (unix, file) = bind::unix(socket).await?;
        let stopping = CancellationToken::new();
        let router = router(Front::new(app, stopping.clone(), limits::HTTP_REQUESTS_MAX));
        let mut listeners = JoinSet::new();
        listeners.spawn(serve(Listener::Unix { _file: file, listener: unix }, router.clone(), stopping.clone()));
        if let Some(tcp) = tcp {
            listeners.spawn(serve(Listener::Tcp(tcp), router, stopping.clone()));
        }
        Ok(Server { api, stopping, listeners })
    }

    /// Where it listens on TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.api
    }

    /// Takes no more connections, answers long polls with what is, lets the requests that run finish within
    /// [`limits::STOP_BOUND`], and ends.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        while self.listeners.join_next().await.is_some() {}
    }
}

/// Whoever holds it uses the connection, also when that speaks HTTP no more: it counts, and a stop waits for it.
#[derive(Clone)]
pub(super) struct Connected {
    _open: mpsc::Sender<Infallible>,
}

enum Listener {
    Tcp(TcpListener),
    /// The file goes first: once the listener is closed, the path may be another's.
    Unix {
        _file: SocketFile,
        listener: UnixListener,
    },
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix { listener, .. } => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// Serves one listener until it is told to stop, then its connections until they end or the bound has passed.
async fn serve(listener: Listener, router: Router, stopping: CancellationToken) {
    let room = Arc::new(Semaphore::new(limits::HTTP_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Room first: what is over the bound waits in the kernel's own queue.
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, place)
        };
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            Some(_) = connections.join_next() => {}
            (stream, place) = accepted => match stream {
                Ok(stream) => {
                    let (router, stopping) = (router.clone(), stopping.clone());
                    connections.spawn(async move {
                        let _place = place;
                        match stream {
                            Stream::Tcp(stream) => {
                                // Answers are small and whole; waiting to fill a packet only delays them.
                                let _ = stream.set_nodelay(true);
                                converse(stream, Peer::Network, router, stopping).await;
                            }
                            Stream::Unix(stream) => {
                                let peer = peer_of(&stream);
                                converse(stream, peer, router, stopping).await;
                            }
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::STOP_BOUND, ended).await.is_err() {
        tracing::warn!("connections were cut, because their requests did not finish in time");
    }
}

/// Only the node's own user and root speak on its socket.
fn peer_of(stream: &UnixStream) -> Peer {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => Peer::Operator,
        _ => Peer::Stranger,
    }
}

/// Serves one connection.
async fn converse<S>(stream: S, peer: Peer, router: Router, stopping: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (open, mut over) = mpsc::channel(1);
    let connected = Connected { _open: open };
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(connected.clone());
        let answer = router.call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    {
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_BOUND)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
        );
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
    // One that has become a WebSocket goes on elsewhere.
    let _ = over.recv().await;
}
