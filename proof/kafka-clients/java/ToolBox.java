import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other in one virtual machine, which starts
 * slowly.
 *
 * <p>Standard input is a row of requests: a class, its arguments and what it reads. Each is answered
 * on standard output by an exit code, what the class printed, and its errors. Numbers are of four
 * bytes, texts have their length in bytes before them.
 */
public final class ToolBox {
    /** A tool that takes longer hangs, and nothing can be run behind it. */
    private static final long TIME_LIMIT_MS = 120_000;

    private ToolBox() {}

    /** With which code the tool ended first; some catch what ends them, and end once more. */
    private static volatile Integer exitCode;

    /** What the tool wants to be done at its end, such as to send what it has. */
    private static final List<Runnable> endings = new ArrayList<>();

    /** Thrown in place of the end of the virtual machine. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;

        Ended() {
            super("the tool ended", null, false, false);
        }
    }

    private static void end(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Ended();
    }

    /** Passes on to what is there at the moment: some classes keep the stream of their first use. */
    private static final class Switch extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        synchronized byte[] take() {
            byte[] bytes = target.toByteArray();
            target = new ByteArrayOutputStream();
            return bytes;
        }

        @Override
        public synchronized void write(int one) {
            target.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int length) {
            target.write(bytes, start, length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(System.out);
        PrintStream log = System.err;
        Switch printed = new Switch();
        Switch errors = new Switch();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, action) -> endings.add(action));
        Timer timer = new Timer("time limit", true);
        while (true) {
            int code;
            TimerTask end = new TimerTask() {
                @Override
                public void run() {
                    endWithStacks(log);
                }
            };
            try {
                code = serve(requests, () -> timer.schedule(end, TIME_LIMIT_MS));
                end.cancel();
            } catch (EOFException noMore) {
                Runtime.getRuntime().halt(0);
                return;
            }
            System.out.flush();
            System.err.flush();
            answers.writeInt(code);
            writeText(answers, printed.take());
            writeText(answers, errors.take());
            answers.flush();
        }
    }

    private static int serve(DataInputStream requests, Runnable begin) throws IOException {
        String name = new String(readText(requests), StandardCharsets.UTF_8);
        String[] arguments = new String[requests.readInt()];
        for (int index = 0; index < arguments.length; index++) {
            arguments[index] = new String(readText(requests), StandardCharsets.UTF_8);
        }
        exitCode = null;
        begin.run();
        endings.clear();
        System.setIn(new ByteArrayInputStream(readText(requests)));
        int code = run(name, arguments);
        endings.forEach(Runnable::run);
        return code;
    }

    private static int run(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException failure) {
            Throwable cause = failure.getCause();
            if (exitCode != null) {
                return exitCode;
            }
            cause.printStackTrace();
            return 1;
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            return 127;
        }
    }

    private static void endWithStacks(PrintStream log) {
        log.println("a tool did not end within " + TIME_LIMIT_MS + " ms:");
        Thread.getAllStackTraces().forEach((thread, stack) -> {
            log.println(thread);
            for (StackTraceElement element : stack) {
                log.println("    at " + element);
            }
        });
        Runtime.getRuntime().halt(1);
    }

    private static byte[] readText(DataInputStream input) throws IOException {
        byte[] text = new byte[input.readInt()];
        input.readFully(text);
        return text;
    }

    private static void writeText(DataOutputStream output, byte[] text) throws IOException {
        output.writeInt(text.length);
        output.write(text);
    }
}
