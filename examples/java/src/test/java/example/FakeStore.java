package example;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.rpc.ErrorInfo;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import logservice.wire.v1.AcquireWriterRequest;
import logservice.wire.v1.AcquireWriterResponse;
import logservice.wire.v1.AppendStreamRequest;
import logservice.wire.v1.AppendStreamResponse;
import logservice.wire.v1.LogGrpc;
import logservice.wire.v1.LogPosition;
import logservice.wire.v1.OpenSessionRequest;
import logservice.wire.v1.OpenSessionResponse;

/** A store that does as it is told. */
final class FakeStore extends LogGrpc.LogImplBase implements AutoCloseable {
    /** What a stream does with a message; {@code stream} counts from 1. */
    interface OnMessage {
        void take(int stream, AppendStreamRequest message, StreamObserver<AppendStreamResponse> answers);
    }

    final AtomicInteger calls = new AtomicInteger();
    final AtomicInteger streams = new AtomicInteger();
    volatile Function<AcquireWriterRequest, AcquireWriterResponse> onAcquire;
    volatile OnMessage onMessage;
    private final Server server;

    FakeStore() throws IOException {
        server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)).addService(this).build().start();
    }

    String address() {
        return "127.0.0.1:" + server.getPort();
    }

    static StatusRuntimeException refusal(Status.Code code, String reason, Map<String, String> details) {
        ErrorInfo info =
                ErrorInfo.newBuilder().setDomain("logservice").setReason(reason).putAllMetadata(details).build();
        return StatusProto.toStatusRuntimeException(com.google.rpc.Status.newBuilder()
                .setCode(code.value()).setMessage("no").addDetails(Any.pack(info)).build());
    }

    @Override
    public void acquireWriter(AcquireWriterRequest request, StreamObserver<AcquireWriterResponse> answers) {
        calls.incrementAndGet();
        try {
            answers.onNext(onAcquire.apply(request));
            answers.onCompleted();
        } catch (StatusRuntimeException refused) {
            answers.onError(refused);
        }
    }

    @Override
    public void openSession(OpenSessionRequest request, StreamObserver<OpenSessionResponse> answers) {
        answers.onNext(OpenSessionResponse.newBuilder()
                .setPosition(LogPosition.getDefaultInstance())
                .setSessionId(7).setNonce(ByteString.copyFrom(new byte[16])).build());
        answers.onCompleted();
    }

    @Override
    public StreamObserver<AppendStreamRequest> appendStream(StreamObserver<AppendStreamResponse> answers) {
        int stream = streams.incrementAndGet();
        return new StreamObserver<>() {
            @Override
            public void onNext(AppendStreamRequest message) {
                onMessage.take(stream, message, answers);
            }

            @Override
            public void onError(Throwable error) {}

            @Override
            public void onCompleted() {}
        };
    }

    @Override
    public void close() {
        server.shutdownNow();
    }
}
