//! Which node a command asks (SPEC §12): the one it names, the one the environment names, the one that runs here.

use std::ffi::OsString;

use super::args::Global;
use super::failure::Misuse;
use crate::client::discovery::{Directory, DiscoveryError, LiveNode, NodeAddress, state_home};
use crate::client::{Client, Endpoint, Secret};
use crate::model::SubName;

/// Finds the node anew for each client, because it may be starting just now.
#[derive(Debug)]
pub(super) struct Connector {
    place: Place,
    requester: Option<SubName>,
}

#[derive(Debug)]
enum Place {
    At { url: String, token: Option<Secret> },
    Here { directory: Option<Directory>, wanted: Option<NodeAddress> },
}

impl Connector {
    /// An argument beats the environment, and an empty variable is none. `variable` reads the environment.
    ///
    /// # Errors
    /// A variable does not say what it should.
    pub(super) fn new(global: &Global, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Misuse> {
        let set = |name: &str| match variable(name) {
            Some(text) if !text.is_empty() => {
                text.into_string().map(Some).map_err(|_| Misuse(format!("{name} is not valid text")))
            }
            _ => Ok(None),
        };
        let token = set("BERTH_TOKEN")?.map(|text| Secret::new(&text));
        let url = match &global.url {
            Some(url) => Some(url.clone()),
            // A node that the command line names beats a URL of the environment.
            None if global.via.is_some() => None,
            None => set("BERTH_URL")?,
        };
        let place = match url {
            Some(url) => Place::At { url, token },
            None if token.is_some() && global.via.is_none() => {
                let why = "BERTH_TOKEN is set without BERTH_URL, but a node of this machine knows you by your user id; \
                           set both or neither";
                return Err(Misuse(why.to_owned()));
            }
            None => {
                let wanted = match &global.via {
                    Some(node) => Some(node.clone()),
                    None => parsed("BERTH_NODE", set("BERTH_NODE")?)?,
                };
                let directory = state_home(variable).map(|home| Directory::in_state_home(&home));
                Place::Here { directory, wanted }
            }
        };
        let requester = match &global.requester {
            Some(requester) => Some(requester.clone()),
            None => parsed("BERTH_REQUESTER", set("BERTH_REQUESTER")?)?,
        };
        Ok(Self { place, requester })
    }

    /// A client of one node of each process of this machine that runs nodes, with its name; or of the one node that is
    /// named.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(super) async fn processes(&self) -> anyhow::Result<Vec<(String, Client)>> {
        let Place::Here { directory, wanted: None } = &self.place else {
            return Ok(vec![("the node".to_owned(), self.client().await?)]);
        };
        let nodes = directory.as_ref().ok_or(DiscoveryError::NoStateHome)?.processes().await?;
        let client = |node: LiveNode| Ok((node.address().to_string(), Client::new(Endpoint::Unix(node.socket))?));
        nodes.into_iter().map(client).collect()
    }

    /// A client of the node.
    ///
    /// # Errors
    /// The URL is none, or no node is found.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let endpoint = match &self.place {
            Place::At { url, token } => Endpoint::Http { url: url.clone(), token: token.clone() },
            Place::Here { directory, wanted } => {
                let directory = directory.as_ref().ok_or(DiscoveryError::NoStateHome)?;
                Endpoint::Unix(directory.find(wanted.as_ref()).await?.socket)
            }
        };
        let client = Client::new(endpoint)?;
        Ok(match &self.requester {
            Some(requester) => client.acting_for(requester.clone()),
            None => client,
        })
    }
}

fn parsed<T>(name: &str, text: Option<String>) -> Result<Option<T>, Misuse>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    text.map(|text| text.parse().map_err(|error| Misuse(format!("{name}: {error}")))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(global: &Global, environment: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| environment.iter().find(|(other, _)| *other == name).map(|(_, text)| OsString::from(text));
        match Connector::new(global, &variable) {
            Ok(Connector { place: Place::At { url, token }, .. }) => {
                format!("{url} {}", if token.is_some() { "with token" } else { "alone" })
            }
            Ok(Connector { place: Place::Here { wanted, .. }, .. }) => {
                wanted.map_or("found here".to_owned(), |node| format!("{node} here"))
            }
            Err(misuse) => misuse.to_string(),
        }
    }

    #[test]
    fn an_argument_beats_the_environment_and_an_empty_variable_is_none() {
        let none = Global::default();
        let url = Global { url: Some("http://arg".into()), ..Global::default() };
        let via = Global { via: Some("lab@w1".parse().unwrap()), ..Global::default() };
        let environment = [("BERTH_URL", "http://env"), ("BERTH_NODE", "lab@w2"), ("BERTH_TOKEN", "bth_x")];
        assert_eq!(place(&none, &[]), "found here");
        assert_eq!(place(&none, &[("BERTH_URL", ""), ("BERTH_TOKEN", "")]), "found here");
        assert_eq!(place(&none, &environment[1..2]), "lab@w2 here");
        assert_eq!(place(&none, &environment), "http://env with token");
        assert_eq!(place(&url, &environment[..2]), "http://arg alone");
        assert_eq!(place(&via, &environment), "lab@w1 here");
    }

    #[test]
    fn a_variable_that_says_nothing_useful_is_named() {
        let none = Global::default();
        assert!(place(&none, &[("BERTH_NODE", "w1")]).starts_with("BERTH_NODE: a node is named LAB@NODE"));
        assert!(place(&none, &[("BERTH_REQUESTER", "a b")]).starts_with("BERTH_REQUESTER: "));
        assert!(place(&none, &[("BERTH_TOKEN", "bth_x")]).contains("set both or neither"));
    }
}
