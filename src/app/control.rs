use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{interval, timeout};

use super::error::{AppError, Result};
use super::stop::StopRequest;
use crate::commands::remote::{ErrorForm, MAX_LINE_BYTES, Request, Response, address, answer, file_name};
use crate::engine::CheckoutOps;
use crate::model::Holder;
use crate::sys;

/// How many requests are carried out at once; more wait.
const MAX_CLIENTS: u32 = 64;
/// How many clients may be connected that have not sent their request yet; of more the oldest are sent away.
const MAX_SILENT: usize = 256;
/// How long a client may take to send its request, and to take its answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a client that waits is told that the daemon still works.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the last answers may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait where no descriptor is left to accept with.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The control socket of a mount, before anybody is served.
#[derive(Debug)]
pub(super) struct Control {
    listener: UnixListener,
    /// Keeps the short address good.
    _directory: File,
    path: PathBuf,
}

impl Control {
    /// Makes the socket of a holder's checkout in `run`, for its owner only, and replaces one that a dead daemon left.
    ///
    /// Needs a tokio runtime. Whoever calls it must have the checkout's mount to himself.
    pub(super) fn bind(run: &Path, holder: &Holder) -> Result<Self> {
        let name = file_name(holder, "sock");
        bind(run, &name).map_err(|source| AppError::Socket { path: run.join(&name), source })
    }

    /// Serves clients from now on.
    pub(super) fn serve(self, ops: Arc<dyn CheckoutOps>, stop: mpsc::Sender<StopRequest>) -> Serving {
        let places = Arc::new(Semaphore::new(MAX_CLIENTS as usize));
        let service = Service { ops, stop };
        let accepting = tokio::spawn(accept(self.listener, service, Arc::clone(&places)));
        Serving { places, accepting, path: self.path, _directory: self._directory }
    }
}

/// Binds under another name and renames, so that the socket never shows with open permissions.
fn bind(run: &Path, name: &str) -> io::Result<Control> {
    sys::make_dirs(run, 0o700)?;
    let new = format!("{name}.new");
    let (directory, new_path) = address(run, &new)?;
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new_path)?;
    // Others who share the workspace may ask what is open; nothing else, which `may_ask` sees to.
    let mode = if sys::is_shared_dir(run) { 0o660 } else { 0o600 };
    fs::set_permissions(&new_path, Permissions::from_mode(mode))?;
    let path = new_path.with_file_name(name);
    fs::rename(&new_path, &path)?;
    Ok(Control { listener, _directory: directory, path })
}

/// A control socket that is served.
pub(super) struct Serving {
    places: Arc<Semaphore>,
    accepting: tokio::task::JoinHandle<()>,
    path: PathBuf,
    _directory: File,
}

impl Serving {
    /// Takes the socket away, and lets the last answers leave.
    pub(super) async fn finish(self) {
        self.accepting.abort();
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, "can't remove the control socket");
        }
        if timeout(FAREWELL, self.places.acquire_many(MAX_CLIENTS)).await.is_err() {
            tracing::warn!("some clients were not answered");
        }
    }
}

#[derive(Clone)]
struct Service {
    ops: Arc<dyn CheckoutOps>,
    stop: mpsc::Sender<StopRequest>,
}

/// Accepts without end: whoever has sent nothing yet takes nobody's place.
async fn accept(listener: UnixListener, service: Service, places: Arc<Semaphore>) {
    let mut silent = Silent::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let sent_away = silent.admit();
                tokio::spawn(serve_client(stream, service.clone(), Arc::clone(&places), sent_away));
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a client");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The clients of whom no request has come yet, oldest first. Dropping one's sender sends him away.
#[derive(Default)]
struct Silent(VecDeque<oneshot::Sender<Infallible>>);

impl Silent {
    /// Makes room for a client; what is returned resolves when he has to go.
    fn admit(&mut self) -> oneshot::Receiver<Infallible> {
        self.0.retain(|client| !client.is_closed());
        if self.0.len() >= MAX_SILENT {
            self.0.pop_front();
        }
        let (sender, receiver) = oneshot::channel();
        self.0.push_back(sender);
        receiver
    }
}

async fn serve_client(
    stream: UnixStream,
    service: Service,
    places: Arc<Semaphore>,
    sent_away: oneshot::Receiver<Infallible>,
) {
    if let Err(error) = serve_request(stream, service, places, sent_away).await {
        tracing::debug!(%error, "a client went away");
    }
}

async fn serve_request(
    stream: UnixStream,
    service: Service,
    places: Arc<Semaphore>,
    sent_away: oneshot::Receiver<Infallible>,
) -> io::Result<()> {
    let is_owner = [0, sys::effective_ids().0].contains(&stream.peer_cred()?.uid());
    let (reader, mut writer) = stream.into_split();
    let line = tokio::select! {
        line = timeout(CLIENT_TIMEOUT, read_line(BufReader::new(reader))) => line??,
        _ = sent_away => return Err(io::ErrorKind::TimedOut.into()),
    };
    if line.is_empty() {
        // Somebody only looked whether we live.
        return Ok(());
    }
    // The place is kept until the answer has left.
    let work = async { (places.acquire().await, service.answer(&line, is_owner).await) };
    let (_place, response) = with_heartbeats(&mut writer, work).await;
    let mut line = serde_json::to_vec(&response)?;
    line.push(b'\n');
    timeout(CLIENT_TIMEOUT, writer.write_all(&line)).await?
}

/// A mount obeys its user and root. Whoever collects what nobody needs has to know what is open in all mounts.
fn may_ask(is_owner: bool, request: &Request) -> bool {
    is_owner || matches!(request, Request::OpenBlobs)
}

/// Reads one line, which a limit keeps from filling the memory; one that was cut is as long as it came.
async fn read_line(reader: impl AsyncBufReadExt + Unpin) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await?;
    Ok(line)
}

/// Sends empty lines while `work` lasts; the work is done though the client be gone.
async fn with_heartbeats<T>(writer: &mut (impl AsyncWriteExt + Unpin), work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    let mut beats = interval(HEARTBEAT);
    beats.tick().await; // the first comes at once
    let mut listening = true;
    loop {
        tokio::select! {
            result = &mut work => return result,
            _ = beats.tick(), if listening => listening = writer.write_all(b"\n").await.is_ok(),
        }
    }
}

impl Service {
    async fn answer(self, line: &[u8], is_owner: bool) -> Response {
        match serde_json::from_slice(line) {
            Ok(request) if may_ask(is_owner, &request) => self.perform(request).await,
            Ok(_) => Response::Error(ErrorForm::failed(
                "the mount is another user's: act as that user, or use another checkout".into(),
            )),
            Err(error) => Response::Error(ErrorForm::failed(format!("bad request: {error}"))),
        }
    }

    async fn perform(self, request: Request) -> Response {
        if let Request::Unmount { lazy } = request {
            return self.unmount(lazy).await;
        }
        let work = tokio::task::spawn_blocking(move || answer(&*self.ops, request));
        work.await.unwrap_or_else(|error| {
            tracing::error!(%error, "BUG: a request panicked");
            Response::Error(ErrorForm::failed("BUG: the daemon panicked; see its log".into()))
        })
    }

    async fn unmount(self, lazy: bool) -> Response {
        let (reply, answer) = oneshot::channel();
        let ending = || Response::Error(ErrorForm::failed("the daemon is ending".into()));
        if self.stop.send(StopRequest { lazy, reply }).await.is_err() {
            return ending();
        }
        match answer.await {
            Ok(Ok(problems)) => Response::Ok(problems.into()),
            Ok(Err(reason)) => Response::Error(ErrorForm::failed(reason)),
            Err(_) => ending(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as StdStream;

    use tokio::runtime::Runtime;

    use super::*;
    use crate::commands::remote::Remote;
    use crate::engine::{
        CheckInReport, CheckInRequest, EngineError, Result as EngineResult, RevertReport, SettleReport,
        StatusReport,
    };
    use crate::model::{ArtifactPath, ChangeNumber, Digest, Lease, VersionNumber};

    /// A checkout that answers from nothing.
    struct Fake;

    impl CheckoutOps for Fake {
        fn status(&self, under: &ArtifactPath) -> EngineResult<StatusReport> {
            Ok(StatusReport { problems: vec![under.to_string()], scratch: 3, ..StatusReport::default() })
        }

        fn checkout(&self, paths: &[ArtifactPath]) -> EngineResult<Vec<Lease>> {
            Err(EngineError::Held { path: paths[0].clone(), lease: None })
        }

        fn check_in(&self, request: &CheckInRequest) -> EngineResult<CheckInReport> {
            assert_eq!(request.onto, Some(VersionNumber(5)));
            Ok(CheckInReport {
                change: Some(ChangeNumber(9)),
                items: Vec::new(),
                left_out: vec![path("x.part")],
            })
        }

        fn revert(&self, _paths: &[ArtifactPath]) -> EngineResult<RevertReport> {
            panic!("on purpose")
        }

        fn save_as(&self, _path: &ArtifactPath, _new: &ArtifactPath) -> EngineResult<()> {
            Ok(())
        }

        fn settle(&self, under: &ArtifactPath) -> EngineResult<SettleReport> {
            std::thread::sleep(HEARTBEAT + Duration::from_millis(300));
            Ok(SettleReport { unsettled: vec![under.clone()], problems: Vec::new() })
        }

        fn add(&self, path: &ArtifactPath) -> EngineResult<()> {
            Err(EngineError::NotFound(path.clone()))
        }

        fn restore(&self, _path: &ArtifactPath, _version: VersionNumber) -> EngineResult<()> {
            Ok(())
        }

        fn open_blobs(&self) -> EngineResult<Vec<Digest>> {
            Ok(vec![Digest::from_bytes([7; 32])])
        }
    }

    struct Daemon {
        runtime: Runtime,
        serving: Serving,
        requests: mpsc::Receiver<StopRequest>,
        remote: Remote,
        socket: PathBuf,
        _dir: tempfile::TempDir,
    }

    fn daemon() -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("r".repeat(150));
        let holder = "ada@desk".parse().unwrap();
        let socket = run.join("ada@desk.sock");
        fs::create_dir(&run).unwrap();
        fs::write(&socket, "left by a dead daemon").unwrap();
        let runtime = Runtime::new().unwrap();
        let (stop, requests) = mpsc::channel(4);
        let serving = {
            let _inside = runtime.enter();
            Control::bind(&run, &holder).unwrap().serve(Arc::new(Fake), stop)
        };
        Daemon { runtime, serving, requests, remote: Remote::at(&run, &holder), socket, _dir: dir }
    }

    fn path(text: &str) -> ArtifactPath {
        ArtifactPath::parse(text).unwrap()
    }

    fn raw(daemon: &Daemon, request: &[u8]) -> String {
        let (_directory, at) = address(daemon.socket.parent().unwrap(), "ada@desk.sock").unwrap();
        let mut stream = StdStream::connect(at).unwrap();
        // The daemon may close before it has read everything.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn a_client_gets_what_the_checkout_answers() {
        let daemon = daemon();
        let status = daemon.remote.status(&path("a/b")).unwrap();
        assert_eq!((status.problems, status.scratch), (vec!["a/b".to_owned()], 3));
        let request = CheckInRequest { onto: Some(VersionNumber(5)), ..CheckInRequest::default() };
        let report = daemon.remote.check_in(&request).unwrap();
        assert_eq!((report.change, report.left_out), (Some(ChangeNumber(9)), vec![path("x.part")]));
        let held = daemon.remote.checkout(&[path("x")]).unwrap_err();
        assert!(matches!(held, EngineError::Held { path, lease: None } if path.to_string() == "x"));
        assert!(matches!(daemon.remote.add(&path("x")), Err(EngineError::NotFound(_))));
        daemon.remote.save_as(&path("x"), &path("y")).unwrap();
        assert_eq!(daemon.remote.open_blobs().unwrap(), [Digest::from_bytes([7; 32])]);
        daemon.runtime.block_on(daemon.serving.finish());
        assert!(!daemon.socket.exists());
    }

    #[test]
    fn the_socket_is_its_owners_alone() {
        let daemon = daemon();
        assert_eq!(fs::metadata(&daemon.socket).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// Connections that send nothing keep nobody waiting, however many they are, and the oldest of too many go.
    #[test]
    fn silent_clients_are_in_nobodys_way() {
        let daemon = daemon();
        let (_directory, at) = address(daemon.socket.parent().unwrap(), "ada@desk.sock").unwrap();
        let silent: Vec<StdStream> = (0..MAX_SILENT + 8).map(|_| StdStream::connect(&at).unwrap()).collect();
        assert_eq!(daemon.remote.status(&path("a")).unwrap().scratch, 3);
        let mut answer = [0; 1];
        silent[0].set_read_timeout(Some(CLIENT_TIMEOUT / 2)).unwrap();
        assert_eq!((&silent[0]).read(&mut answer).unwrap(), 0, "the oldest is sent away");
        silent[MAX_SILENT].set_nonblocking(true).unwrap();
        let waits = (&silent[MAX_SILENT]).read(&mut answer).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock, "nobody's time had to run out for that");
    }

    #[test]
    fn long_work_is_waited_for() {
        let settled = daemon().remote.settle(&path("a")).unwrap();
        assert_eq!(settled.unsettled, [path("a")]);
    }

    #[test]
    fn no_request_hurts_the_daemon() {
        let daemon = daemon();
        let deep = [b"[".repeat(100_000), b"\n".to_vec()].concat();
        let huge = vec![b'x'; usize::try_from(MAX_LINE_BYTES).unwrap() + 4096];
        for (request, answered) in [
            (&b"\n"[..], true),
            (b"{}\n", true),
            (b"\xff\xfe\0\n", true),
            (br#"{"op":"status","under":{"path":"../x"}}"#, true),
            (br#"{"op":"status","under":{"path":"a","path_hex":"zz"}}"#, true),
            (br#"{"op":"check_in","paths":["#, true),
            (br#"{"op":"format_disk"}"#, true),
            (&deep, true),
            (&huge, false),
            (b"", false),
        ] {
            let answer = raw(&daemon, request);
            assert!(
                !answered || answer.starts_with(r#"{"error":{"kind":"failed","message":"bad request"#),
                "{answer}"
            );
        }
        daemon.remote.status(&path("a")).unwrap();
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let daemon = daemon();
        let error = daemon.remote.revert(&[path("a")]).unwrap_err();
        assert!(error.to_string().contains("BUG"));
        daemon.remote.status(&path("a")).unwrap();
    }

    #[test]
    fn an_unmount_waits_for_the_end_of_the_mount() {
        let mut daemon = daemon();
        let (run, holder) = (daemon.socket.parent().unwrap().to_owned(), "ada@desk".parse().unwrap());
        let client = std::thread::spawn(move || Remote::at(&run, &holder).unmount(false));
        let request = daemon.runtime.block_on(daemon.requests.recv()).unwrap();
        assert!(!request.lazy);
        request.reply.send(Ok(vec!["a: lost".into()])).unwrap();
        assert_eq!(client.join().unwrap().unwrap(), ["a: lost"]);
        drop(daemon.requests);
        assert!(daemon.remote.unmount(true).unwrap_err().to_string().contains("ending"));
    }
}
