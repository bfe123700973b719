//! The whole file, and the sections that say where a lab is: their defaults, and what spans several keys.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::given::{Given, Raw};
use super::load::{PLAIN, TOP};
use super::section::{Document, Section, Variables};
use super::{ConfigError, GatewayConfig, Lab, Origin, PkiPaths, Source, Value};
use super::{calendar, exec, rules, worker};
use crate::admission::{CalendarRules, Rules};
use crate::model::LabName;
use crate::model::span::{self, Bounds};

/// How long something may be waited for; not at all is fine.
pub(super) const GRACE: Bounds = Bounds { least: Duration::ZERO, most: Duration::from_secs(24 * 3600) };

/// Reads the sections one after the other, and takes note of each value and its place.
pub(super) struct Reader<'d> {
    pub document: Document<'d>,
    variables: &'d BTreeMap<String, Variables>,
    pub env: &'d BTreeMap<String, String>,
    values: Vec<Value>,
}

impl<'d> Reader<'d> {
    pub fn new(
        document: Document<'d>,
        variables: &'d BTreeMap<String, Variables>,
        env: &'d BTreeMap<String, String>,
    ) -> Self {
        Self { document, variables, env, values: Vec::new() }
    }

    /// Every value that was read or defaulted.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// The directory of the lab file; none for the one inside the program.
    pub fn directory(&self) -> Option<PathBuf> {
        match self.document.source {
            Source::Embedded => None,
            Source::File(path) => std::path::absolute(path).ok()?.parent().map(ToOwned::to_owned),
        }
    }

    /// Takes note of a value that is in force.
    pub fn note(&mut self, key: impl Into<String>, value: impl Into<String>, origin: Origin) {
        self.values.push(Value { key: key.into(), value: value.into(), origin });
    }

    /// Takes note of a text that is in force.
    pub fn note_text(&mut self, key: &str, value: &str, origin: Origin) {
        self.note(key, format!("{value:?}"), origin);
    }

    /// The whole file.
    pub fn lab(&mut self, table: &'d DeTable<'d>) -> Result<Lab, ConfigError> {
        let end = self.document.at(self.document.text.len().saturating_sub(1));
        let mut top = Section::open(self.document, "", end.clone(), Some(table), None, TOP)?;
        let mut sections = BTreeMap::new();
        for (name, known) in PLAIN {
            let given = top.take(name);
            let (at, inner) = match &given {
                None => (end.clone(), None),
                Some(given) => (given.origin.clone(), Some(inner_table(given)?)),
            };
            let variables = self.variables.get(*name);
            if *name == "gateway" && given.is_none() {
                if let Some((key, (variable, _))) = variables.and_then(|variables| variables.first_key_value()) {
                    let why = "the lab file has no [gateway]; add one, or unset the variable".to_owned();
                    let at = Origin::Environment(variable.clone());
                    return Err(ConfigError::Value { at, key: format!("gateway.{key}"), why });
                }
                continue;
            }
            sections.insert(*name, Section::open(self.document, name, at, inner, variables, known)?);
        }
        let mut section = |name: &str| sections.remove(name).expect("every plain section but a gateway is opened");
        let (name, state_dir) = self.lab_section(section("lab"))?;
        let insecure = self.insecure(section("api"))?;
        let pki = self.pki(section("pki"))?;
        let (lease, lock_delay) = rules::lease(self, section("lease"))?;
        let waiting = rules::waiting_room(self, section("waiting_room"))?;
        let mut calendar = CalendarRules::default();
        let bookings = calendar::bookings(self, section("bookings"), &mut calendar)?;
        calendar::holds(self, section("holds"), &mut calendar)?;
        let events = rules::events(self, section("events"))?;
        let limits = rules::limits(self, section("limits"), &mut calendar)?;
        let exec = exec::exec(self, section("exec"))?;
        let rules = Rules { lease, waiting, calendar, events, limits, exec };
        let gateway = sections.remove("gateway").map(|gateway| self.gateway(gateway, insecure)).transpose()?;
        let common = worker::Common { bookings, lock_delay };
        let workers = worker::read(self, top, gateway.as_ref(), insecure, common)?;
        Ok(Lab { name, state_dir, gateway, pki, insecure, rules, workers })
    }

    fn lab_section(&mut self, mut section: Section<'d>) -> Result<(LabName, PathBuf), ConfigError> {
        let given = section.need("name", "write name = \"…\" under [lab]")?;
        let name: LabName = given.parsed()?;
        self.note_text("lab.name", name.as_str(), given.origin);
        let (dir, origin) = match section.take("state_dir") {
            Some(given) if given.text()?.is_empty() => {
                return Err(given.refuse("is empty; name a directory, or leave the key out for the default"));
            }
            Some(given) => (PathBuf::from(given.text()?), given.origin),
            None => {
                let dir = default_state_dir(self.env, &name).ok_or_else(|| {
                    let why = "has no default here, because HOME is not set; set it, or BERTH_LAB__STATE_DIR";
                    section.refuse("state_dir", why.to_owned())
                })?;
                (dir, Origin::Default)
            }
        };
        let absolute = std::path::absolute(&dir).map_err(|error| {
            let why = format!("the current directory cannot be told ({error}); write an absolute path");
            ConfigError::Value { at: origin.clone(), key: "lab.state_dir".to_owned(), why }
        })?;
        self.note_text("lab.state_dir", &absolute.to_string_lossy(), origin);
        Ok((name, absolute))
    }

    fn gateway(&mut self, mut section: Section<'d>, insecure: bool) -> Result<GatewayConfig, ConfigError> {
        let (name, origin) = match section.take("name") {
            Some(given) => (given.parsed()?, given.origin),
            None => ("gateway".parse().expect("the word is a node name"), Origin::Default),
        };
        self.note_text("gateway.name", &format!("{name}"), origin);
        let api = match section.take("api") {
            Some(given) => {
                let api = api_address(&given, insecure)?;
                self.note_text("gateway.api", &api.to_string(), given.origin);
                api
            }
            None => self.default_address("gateway.api", 4700),
        };
        let link = match section.take("link") {
            Some(given) => {
                let link = given.socket()?;
                self.note_text("gateway.link", &link.to_string(), given.origin);
                link
            }
            None => self.default_address("gateway.link", 4701),
        };
        let (address, origin) = match section.take("address") {
            Some(given) => {
                let text = given.text()?;
                let port =
                    text.rsplit_once(':').filter(|(host, _)| is_host(host)).and_then(|(_, port)| port.parse().ok());
                if port.is_none_or(|port: u16| port == 0) {
                    let why = "must be a host and a port that workers can dial, such as \"gw.lab.example:4701\"";
                    return Err(given.refuse(why));
                }
                (text.to_owned(), given.origin)
            }
            None => (dialled(link).to_string(), Origin::Default),
        };
        self.note_text("gateway.address", &address, origin);
        let rebuild_wait = self.duration(&mut section, "rebuild_wait", Duration::from_secs(10), GRACE)?.0;
        let absence_grace = self.duration(&mut section, "absence_grace", Duration::from_secs(30), GRACE)?.0;
        Ok(GatewayConfig { name, api, link, address, rebuild_wait, absence_grace })
    }

    fn pki(&mut self, mut section: Section<'d>) -> Result<Option<PkiPaths>, ConfigError> {
        let given = ["ca", "cert", "key"].map(|key| (key, section.take(key)));
        let ca_key = section.take("ca_key");
        if given.iter().all(|(_, given)| given.is_none()) && ca_key.is_none() {
            return Ok(None);
        }
        let mut paths = Vec::with_capacity(3);
        for (key, given) in given {
            let given = given.ok_or_else(|| {
                let why = "is missing; [pki] needs ca, cert and key, or none of them to have Berth make its own";
                section.refuse(key, why.to_owned())
            })?;
            paths.push(self.path(given)?);
        }
        let [ca, cert, key] = <[PathBuf; 3]>::try_from(paths).expect("three keys were read");
        let ca_key = ca_key.map(|given| self.path(given)).transpose()?;
        Ok(Some(PkiPaths { ca, cert, key, ca_key }))
    }

    fn path(&mut self, given: Given<'d>) -> Result<PathBuf, ConfigError> {
        let text = given.text()?;
        if text.is_empty() {
            return Err(given.refuse("is empty; name a file"));
        }
        self.note_text(&given.key, text, given.origin);
        Ok(PathBuf::from(text))
    }

    fn insecure(&mut self, mut section: Section<'d>) -> Result<bool, ConfigError> {
        let (insecure, origin) = match section.take("insecure") {
            Some(given) => (given.flag()?, given.origin),
            None => (false, Origin::Default),
        };
        self.note("api.insecure", insecure.to_string(), origin);
        Ok(insecure)
    }

    /// A duration under `section`, or its default; takes note of it.
    pub fn duration(
        &mut self,
        section: &mut Section<'d>,
        key: &str,
        default: Duration,
        bounds: Bounds,
    ) -> Result<(Duration, Origin), ConfigError> {
        let (length, origin) = match section.take(key) {
            Some(given) => (given.duration(bounds)?, given.origin),
            None => (default, Origin::Default),
        };
        self.note_text(&section.key(key), &span::written(length), origin.clone());
        Ok((length, origin))
    }

    fn default_address(&mut self, key: &str, port: u16) -> SocketAddr {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.note_text(key, &address.to_string(), Origin::Default);
        address
    }
}

/// The table that `given` is.
pub(super) fn inner_table<'d>(given: &Given<'d>) -> Result<&'d DeTable<'d>, ConfigError> {
    match given.raw {
        Raw::Toml(DeValue::Table(table)) => Ok(table),
        _ => Err(given.refuse(format!("must be a table; write [{}] and its keys below", given.key))),
    }
}

/// An address that serves plain HTTP.
pub(super) fn api_address(given: &Given<'_>, insecure: bool) -> Result<SocketAddr, ConfigError> {
    let address = given.socket()?;
    if !address.ip().is_loopback() && !insecure {
        return Err(given.refuse(format!(
            "{address} is not loopback, and plain HTTP would show tokens to the network; \
             listen on 127.0.0.1, or set api.insecure = true under [api] if the network is trusted"
        )));
    }
    Ok(address)
}

/// `link` as something to dial: loopback where it stands for every address.
fn dialled(link: SocketAddr) -> SocketAddr {
    let ip = match link.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, link.port())
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => {
            let shaped = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            (1..=253).contains(&host.len()) && host.bytes().all(shaped)
        }
    }
}

/// `$XDG_STATE_HOME/berth/<lab>`, else `~/.local/state/berth/<lab>`. As the XDG rules say, only an absolute path counts.
pub fn default_state_dir(env: &BTreeMap<String, String>, lab: &LabName) -> Option<PathBuf> {
    let absolute = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("berth").join(lab.as_str()))
}
