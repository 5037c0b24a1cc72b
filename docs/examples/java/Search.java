// Stores a document and searches for it over gRPC. docs/guide/languages.md says how to build it.

import hrag.v1.Document;
import hrag.v1.IndexerServiceGrpc;
import hrag.v1.IngestDocumentRequest;
import hrag.v1.Passage;
import hrag.v1.RetrieverServiceGrpc;
import hrag.v1.SearchRequest;
import io.grpc.ClientInterceptor;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

public final class Search {
  private static final String CA_FILE = env("HRAG_CA_FILE", "");

  private static String env(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }

  /** Opens a channel, with TLS if HRAG_CA_FILE is set. */
  private static ManagedChannel connect(String address) throws Exception {
    NettyChannelBuilder builder = NettyChannelBuilder.forTarget(address);
    if (CA_FILE.isEmpty()) {
      return builder.usePlaintext().build();
    }
    var tls = GrpcSslContexts.forClient().trustManager(new File(CA_FILE)).build();
    return builder.sslContext(tls).build();
  }

  /** Sends the key with each call, only over TLS. */
  private static ClientInterceptor authorization() {
    var headers = new Metadata();
    String key = env("HRAG_TOKEN", "");
    if (!key.isEmpty() && !CA_FILE.isEmpty()) {
      var name = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
      headers.put(name, "Bearer " + key);
    }
    return MetadataUtils.newAttachHeadersInterceptor(headers);
  }

  public static void main(String[] arguments) throws Exception {
    String question = arguments.length > 0 ? arguments[0] : "what do dogs do?";
    var toIndexer = connect(env("HRAG_INDEXER_ADDRESS", "127.0.0.1:50051"));
    var toRetriever = connect(env("HRAG_RETRIEVER_ADDRESS", "127.0.0.1:50052"));
    try {
      var indexer = IndexerServiceGrpc.newBlockingStub(toIndexer)
          .withInterceptors(authorization()).withDeadlineAfter(30, TimeUnit.SECONDS);
      var retriever = RetrieverServiceGrpc.newBlockingStub(toRetriever)
          .withInterceptors(authorization()).withDeadlineAfter(30, TimeUnit.SECONDS);
      var document = Document.newBuilder()
          .setDocumentId("pets").setTitle("Pets").setText("Cats sleep. Dogs bark.");
      var stored = indexer.ingestDocument(
          IngestDocumentRequest.newBuilder().setTenantId("acme").setDocument(document).build());
      // minSequence makes any retriever wait until it sees this document.
      var search = SearchRequest.newBuilder()
          .setTenantId("acme").setText(question).setLimit(3).setMinSequence(stored.getSequence());
      for (Passage passage : retriever.search(search.build()).getPassagesList()) {
        var chunk = passage.getChunk();
        System.out.printf(Locale.ROOT, "%.3f %s %s%n",
            passage.getScore(), chunk.getChunkId(), chunk.getContent());
      }
    } finally {
      toIndexer.shutdownNow();
      toRetriever.shutdownNow();
    }
  }
}
