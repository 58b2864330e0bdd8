//! Broker whose responses a test scripts.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, FindCoordinatorResponse, MetadataResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, StrBytes, decode_request_header_from_buffer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A received request.
pub(crate) struct Asked {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) header: RequestHeader,
    pub(crate) body: Bytes,
    /// Address of the broker.
    pub(crate) address: std::net::SocketAddr,
}

/// Reaction to a request.
pub(crate) enum Deed {
    Send(Vec<u8>),
    SendAndEnd(Vec<u8>),
    End,
    Wait,
}

impl Asked {
    /// Encodes a response as a frame.
    pub(crate) fn answer(&self, response: &(impl Encodable + HeaderVersion)) -> Vec<u8> {
        self.answer_as(self.header.correlation_id, response)
    }

    pub(crate) fn answer_as(
        &self,
        correlation_id: i32,
        response: &(impl Encodable + HeaderVersion),
    ) -> Vec<u8> {
        fn header_version<T: HeaderVersion>(_: &T, version: i16) -> i16 {
            T::header_version(version)
        }
        let mut body = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(correlation_id)
            .encode(&mut body, header_version(response, self.version))
            .expect("a header");
        response.encode(&mut body, self.version).expect("a response");
        frame(&body)
    }

    pub(crate) fn read<R: Decodable>(&self) -> R {
        R::decode(&mut self.body.clone(), self.version).expect("a request")
    }

    /// Returns an `ApiVersions` response: versions 0 to `max` of these APIs, and those that every
    /// client needs.
    pub(crate) fn versions(&self, others: &[(ApiKey, i16)]) -> Vec<u8> {
        let needed = [(ApiKey::ApiVersions, 3), (ApiKey::Metadata, 9)];
        let api = |&(key, max): &(ApiKey, i16)| {
            ApiVersion::default().with_api_key(key as i16).with_max_version(max)
        };
        let keys = needed.iter().chain(others).map(api).collect();
        self.answer(&ApiVersionsResponse::default().with_api_keys(keys))
    }

    /// Returns a response that names this broker as a group's coordinator.
    pub(crate) fn coordinator(&self) -> Vec<u8> {
        let response = FindCoordinatorResponse::default()
            .with_node_id(BrokerId(1))
            .with_host(StrBytes::from_string(self.address.ip().to_string()))
            .with_port(self.address.port().into());
        self.answer(&response)
    }

    /// Returns a metadata response: a cluster of this broker, which leads all partitions of topic
    /// `t`.
    pub(crate) fn cluster(&self, partitions: i32) -> Vec<u8> {
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(1))
            .with_host(StrBytes::from_string(self.address.ip().to_string()))
            .with_port(self.address.port().into());
        let partition = |index| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(1))
        };
        let topic = MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str("t"))))
            .with_partitions((0..partitions).map(partition).collect());
        let response =
            MetadataResponse::default().with_brokers(vec![broker]).with_topics(vec![topic]);
        self.answer(&response)
    }
}

pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(i32::try_from(body.len()).expect("a short body"));
    frame.put_slice(body);
    frame
}

/// Starts a broker and returns its address. `script` is called for each request of each connection.
pub(crate) async fn broker(script: impl FnMut(&Asked) -> Deed + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, address, script.clone()));
        }
    });
    address.to_string()
}

/// Serves requests until the client or the script ends the connection.
async fn serve(
    mut stream: TcpStream,
    address: std::net::SocketAddr,
    mut script: impl FnMut(&Asked) -> Deed,
) -> Option<()> {
    loop {
        let length = usize::try_from(stream.read_i32().await.ok()?).ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let mut body = Bytes::from(body);
        let header = decode_request_header_from_buffer(&mut body).expect("a good header");
        let key = ApiKey::try_from(header.request_api_key).expect("a known request");
        let version = header.request_api_version;
        let asked = Asked { key, version, header, body, address };
        match script(&asked) {
            Deed::Send(bytes) => stream.write_all(&bytes).await.ok()?,
            Deed::SendAndEnd(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                return stream.shutdown().await.ok();
            }
            Deed::End => return None,
            Deed::Wait => {}
        }
    }
}
