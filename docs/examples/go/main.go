// Stores a document and searches for it over gRPC. docs/guide/languages.md says how to build it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	hrag "hrag/v1"
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// codec encodes messages with the library for which protoc-gen-go generates code. The gRPC of
// Debian uses an older library; a current gRPC needs no codec.
type codec struct{}

func (codec) Name() string                          { return "proto" }
func (codec) Marshal(v interface{}) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (codec) Unmarshal(data []byte, v interface{}) error {
	return proto.Unmarshal(data, v.(proto.Message))
}

// connect opens a connection, with TLS if HRAG_CA_FILE is set.
func connect(address string) *grpc.ClientConn {
	security := grpc.WithInsecure()
	if file := os.Getenv("HRAG_CA_FILE"); file != "" {
		tls, err := credentials.NewClientTLSFromFile(file, "")
		if err != nil {
			log.Fatal(err)
		}
		security = grpc.WithTransportCredentials(tls)
	}
	connection, err := grpc.Dial(address, security, grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})))
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func main() {
	question := "what do dogs do?"
	if len(os.Args) > 1 {
		question = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// A key is sent only over TLS.
	if key := os.Getenv("HRAG_TOKEN"); key != "" && os.Getenv("HRAG_CA_FILE") != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
	}
	toIndexer := connect(env("HRAG_INDEXER_ADDRESS", "127.0.0.1:50051"))
	defer toIndexer.Close()
	toRetriever := connect(env("HRAG_RETRIEVER_ADDRESS", "127.0.0.1:50052"))
	defer toRetriever.Close()

	stored, err := hrag.NewIndexerServiceClient(toIndexer).IngestDocument(ctx, &hrag.IngestDocumentRequest{
		TenantId: "acme",
		Document: &hrag.Document{
			DocumentId: "pets",
			Title:      "Pets",
			Body:       &hrag.Document_Text{Text: "Cats sleep. Dogs bark."},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	limit := uint32(3)
	// MinSequence makes any retriever wait until it sees this document.
	result, err := hrag.NewRetrieverServiceClient(toRetriever).Search(ctx, &hrag.SearchRequest{
		TenantId: "acme", Text: question, Limit: &limit, MinSequence: stored.Sequence,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, passage := range result.Passages {
		fmt.Printf("%.3f %s %s\n", passage.Score, passage.Chunk.ChunkId, passage.Chunk.Content)
	}
}
