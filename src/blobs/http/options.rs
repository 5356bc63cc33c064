use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::blocking::Client;
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use reqwest::redirect::Policy;
use reqwest::tls::Certificate;

use crate::blobs::BlobError;

/// How long a whole download, a whole upload, one probe or one batch of probes may take by default.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest deadline that can be asked for: longer ones are mistakes, and near the maximum would mean none at all.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many bytes a download may have by default.
const DOWNLOAD_BYTES: u64 = 256 << 20;
/// How long the value of a header may be.
const HEADER_BYTES: usize = 16 << 10;
/// What the client computes itself: a configured one would cut bodies or give two requests in the place of one.
const COMPUTED: [HeaderName; 5] =
    [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_RANGE, TRANSFER_ENCODING, CONNECTION];

/// Where a store elsewhere is, and how it is talked to.
#[derive(Clone)]
pub struct HttpOptions {
    /// The address below which `cas/` lies: `https`, or `http` to this machine itself.
    pub endpoint: String,
    /// Headers for each request, such as `Authorization`. What describes a body is left out: it is computed.
    pub headers: Vec<(String, String)>,
    /// A directory for temporary files without names.
    pub spool: PathBuf,
    /// How long a download may take, to its last byte.
    pub download_deadline: Duration,
    /// How long an upload may take, with all its requests.
    pub upload_deadline: Duration,
    /// How long one probe or one batch of probes may take.
    pub probe_deadline: Duration,
    /// How many bytes a download may have.
    pub max_download_bytes: u64,
    /// Sends larger blobs in chunks of so many bytes, which the server must understand; none: each in one request.
    pub chunk_bytes: Option<u64>,
    /// Goes through the proxy that `HTTPS_PROXY` and its kin name.
    pub system_proxy: bool,
    /// Certificates (PEM) to trust besides those of the system.
    pub root_certificates: Option<Vec<u8>>,
}

impl HttpOptions {
    /// The defaults for a store at `endpoint`.
    pub fn new(endpoint: impl Into<String>, spool: impl Into<PathBuf>) -> Self {
        Self {
            endpoint: endpoint.into(),
            headers: Vec::new(),
            spool: spool.into(),
            download_deadline: DEADLINE,
            upload_deadline: DEADLINE,
            probe_deadline: DEADLINE,
            max_download_bytes: DOWNLOAD_BYTES,
            chunk_bytes: None,
            system_proxy: false,
            root_certificates: None,
        }
    }

    /// The address that digests are appended to.
    pub(super) fn base(&self) -> Result<String, BlobError> {
        let url = Url::parse(&self.endpoint).map_err(|_| wrong("the endpoint is no address"))?;
        // By their text: a URL's normal form could hide that there was something.
        if self.endpoint.contains('?') || self.endpoint.contains('#') {
            return Err(wrong("the endpoint has a query or a fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the endpoint has a user or a password: use a header"));
        }
        match (url.scheme(), url.host_str()) {
            ("https", Some(_)) | ("http", Some("localhost" | "127.0.0.1" | "[::1]")) => {}
            _ => return Err(wrong("the endpoint must be https, or http to localhost, 127.0.0.1 or [::1]")),
        }
        Ok(format!("{}/cas/", url.as_str().trim_end_matches('/')))
    }

    /// Makes the client, after all that can be checked.
    pub(super) fn client(&self) -> Result<Client, BlobError> {
        self.check_bounds()?;
        // Fails only if there is a provider already, which is as good.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut builder = Client::builder()
            .user_agent(concat!("leasehold/", env!("CARGO_PKG_VERSION")))
            .default_headers(self.header_map()?)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // The one name that may be reached without TLS must not be what a name server says.
            .resolve_to_addrs("localhost", &loopback.map(|address| SocketAddr::new(address, 0)))
            // Each request brings its own, for the whole.
            .timeout(None);
        if !self.system_proxy {
            builder = builder.no_proxy();
        }
        if let Some(pem) = &self.root_certificates {
            let parsed = Certificate::from_pem_bundle(pem);
            builder = builder.tls_certs_merge(parsed.map_err(|_| wrong("the root certificates are no PEM"))?);
        }
        builder.build().map_err(|_| wrong("no client can be made of it"))
    }

    fn check_bounds(&self) -> Result<(), BlobError> {
        for deadline in [self.download_deadline, self.upload_deadline, self.probe_deadline] {
            if deadline.is_zero() || deadline > LONGEST_DEADLINE {
                return Err(wrong("a deadline must be more than nothing and at most a day"));
            }
        }
        if self.max_download_bytes == 0 || self.chunk_bytes == Some(0) {
            return Err(wrong("a number of bytes must be more than nothing"));
        }
        Ok(())
    }

    fn header_map(&self) -> Result<HeaderMap, BlobError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("a header's name is no token"))?;
            if value.len() > HEADER_BYTES {
                return Err(wrong("a header's value is too long"));
            }
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(wrong("a header's value has control characters"));
            }
            let mut value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| wrong("a header's value can't be sent"))?;
            value.set_sensitive(true);
            if !COMPUTED.contains(&name) {
                headers.append(name, value);
            }
        }
        Ok(headers)
    }
}

fn wrong(problem: &'static str) -> BlobError {
    BlobError::Configuration { problem }
}

/// Without what may be secret: the endpoint's path, the headers.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions").field("spool", &self.spool).finish_non_exhaustive()
    }
}
