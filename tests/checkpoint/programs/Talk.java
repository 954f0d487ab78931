import java.io.*;
import java.net.*;
import java.util.zip.CRC32;

/** A server with a thread for each of its clients, which come and go; a line for each round. */
public class Talk {
    static void serve(Socket socket) {
        try (socket; DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()))) {
            for (;;) {
                byte[] data = new byte[in.readInt()];
                in.readFully(data);
                CRC32 sum = new CRC32();
                sum.update(data);
                out.writeLong(sum.getValue());
                out.write(data);
                out.flush();
            }
        } catch (EOFException end) {
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static long talk(int port, int round) throws IOException {
        long total = 0;
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
                DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()))) {
            socket.setTcpNoDelay(true); // a request is several writes
            for (int n = 0; n < 20; n++) {
                byte[] data = new byte[(round * 31 + n * 977) % 50000 + 1];
                java.util.Arrays.fill(data, (byte) (round + n));
                out.writeInt(data.length);
                out.write(data);
                out.flush();
                total = total * 31 + in.readLong();
                byte[] back = new byte[data.length];
                in.readFully(back);
                if (!java.util.Arrays.equals(data, back)) throw new IOException("other bytes came back");
            }
        }
        return total;
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread accepts = new Thread(() -> {
            try {
                for (;;) {
                    Socket socket = server.accept();
                    socket.setTcpNoDelay(true);
                    new Thread(() -> serve(socket)).start();
                }
            } catch (SocketException closed) {
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
        accepts.start();
        long total = 0;
        for (int round = 0; round < 40; round++) {
            total = total * 31 + talk(server.getLocalPort(), round);
            System.out.println(round + " " + Long.toHexString(total));
        }
        server.close();
        accepts.join();
    }
}
